package main

import "fmt"

// scenario is a table, the publication "record" of it, and statements whose changes are recorded. A
// table "other" that is not published is there too.
type scenario struct {
	name     string
	setup    string
	steps    []string // one simple query each
	cleanup  string
	prepares bool // needs max_prepared_transactions
}

const published = `CREATE TABLE other (n int);
	CREATE PUBLICATION record FOR TABLE outbox WITH (publish = 'insert, truncate', publish_via_partition_root = true)`

// native is the table as our migrations make it, with a payload of the given type.
func native(payload string) string {
	return fmt.Sprintf(`CREATE TABLE outbox (
		id             bigint PRIMARY KEY,
		event_id       uuid NOT NULL UNIQUE,
		aggregate_type text NOT NULL,
		aggregate_id   text NOT NULL,
		event_type     text NOT NULL,
		payload        %s,
		headers        jsonb,
		topic          text,
		partition_key  text,
		created_at     timestamptz NOT NULL DEFAULT '2026-11-30 10:00:00.123456+00',
		published_at   timestamptz
	); `, payload) + published
}

// insert makes a row with the given number and payload, a literal or an expression.
func insert(id int, payload string) string {
	return fmt.Sprintf(`INSERT INTO outbox (id, event_id, aggregate_type, aggregate_id, event_type, payload)
		VALUES (%d, '00000000-0000-4000-8000-%012d', 'order', 'o-%d', 'OrderCreated', %s); `, id, id, id, payload)
}

func scenarios() []scenario {
	return []scenario{
		{name: "outbox_rows", setup: native("jsonb"), steps: []string{
			insert(1, `'{"total": 1.10, "big": 9007199254740993, "tiny": 1e-7, "b": 1, "a": "h\u00e9llo"}'`),
			`INSERT INTO outbox VALUES (2, 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'Order', 'o-2', 'order.created.v1', '[]',
				'{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "n": 1.10}', 'chosen.topic', 'key-2',
				'2026-11-30 12:00:00+02', '2026-11-30 10:00:01+00')`,
			insert(3, `NULL`) + insert(4, `'null'`) + insert(5, `'""'`),
			`INSERT INTO outbox VALUES (9223372036854775807, 'ffffffff-ffff-ffff-ffff-ffffffffffff', '', '', '', '{}', '{}', '', '',
				'0044-03-15 12:00:00+00 BC', 'infinity')`,
		}},
		{name: "outbox_json", setup: native("json"), steps: []string{
			insert(1, `'{"b" : 1.10,  "a":9007199254740993, "a": 1E400 }'`),
		}},
		{name: "outbox_text", setup: native("text"), steps: []string{
			insert(1, `E'not json, \u00e9, "quoted", \\x00ff'`) + insert(2, `''`),
		}},
		{name: "outbox_bytea", setup: native("bytea"), steps: []string{
			insert(1, `'\x00ff105c'`) + insert(2, `'\x'`) + insert(3, `NULL`),
		}},
		{name: "outbox_keys", setup: `CREATE DOMAIN row_number AS bigint; CREATE DOMAIN document AS jsonb; CREATE TYPE kind AS ENUM ('order', 'user');
			CREATE TABLE outbox (payload document, created_at timestamp, partition_key bigint, aggregate_id uuid, event_id uuid,
				aggregate_type kind, event_type char(12), id row_number);` + published, steps: []string{
			`INSERT INTO outbox VALUES ('{"n": 1.10}', '2026-11-30 10:00:00.5', -42, 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
				'00000000-0000-4000-8000-000000000001', 'order', 'created', 1)`,
			`INSERT INTO outbox VALUES (NULL, 'infinity', NULL, 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
				'00000000-0000-4000-8000-000000000002', 'user', 'gone', 2)`,
		}, cleanup: `DROP TYPE kind; DROP DOMAIN row_number, document`},
		{name: "outbox_large", setup: `CREATE TABLE outbox (payload jsonb, headers jsonb, aggregate_type text, aggregate_id text,
				event_type text, event_id uuid, id bigint);` + published, steps: []string{
			`INSERT INTO outbox VALUES (jsonb_build_object('x', repeat('x', 100000)), '{"h": "1"}', 'order', 'o-1', 'created',
				'00000000-0000-4000-8000-000000000001', 1)`,
		}},
		{name: "outbox_poison", setup: `CREATE TABLE outbox (id bigint, event_id text, aggregate_type text, aggregate_id text,
				event_type text, payload text);` + published, steps: []string{
			`INSERT INTO outbox VALUES (1, '00000000-0000-4000-8000-00000000000A', 'order', 'o-1', 'created', 'sound')`,
			`INSERT INTO outbox VALUES (2, 'no uuid', 'order', 'o-1', 'created', 'event id')`,
			`INSERT INTO outbox VALUES (NULL, '00000000-0000-4000-8000-000000000003', 'order', 'o-1', 'created', 'row id')`,
			`INSERT INTO outbox VALUES (4, '00000000-0000-4000-8000-000000000004', 'order', NULL, 'created', 'aggregate id')`,
		}},
		{name: "outbox_truncate", setup: native("jsonb"), steps: []string{
			insert(1, `'{}'`), `TRUNCATE outbox`, insert(2, `'{}'`), `TRUNCATE outbox RESTART IDENTITY CASCADE`,
		}},
		{name: "outbox_alter", setup: native("jsonb"), steps: []string{
			insert(1, `'{"before": 1}'`),
			`ALTER TABLE outbox ADD COLUMN tenant text DEFAULT 't'`,
			`BEGIN; ` + insert(2, `'{"added": 2}'`) + `ALTER TABLE outbox DROP COLUMN headers; ` + insert(3, `'{"dropped": 3}'`) + `COMMIT`,
			`ALTER TABLE outbox RENAME COLUMN topic TO subject`,
			insert(4, `'{"renamed": 4}'`),
		}},
		{name: "outbox_savepoint", setup: native("jsonb"), steps: []string{
			`BEGIN; ` + insert(1, `'1'`) + `SAVEPOINT a; ` + insert(2, `'"rolled back"'`) + `ROLLBACK TO a; ` + insert(3, `'3'`) + `COMMIT`,
			`BEGIN; ` + insert(4, `'"rolled back"'`) + `ROLLBACK`,
		}},
		{name: "outbox_prepared", setup: native("jsonb"), prepares: true, steps: []string{
			`BEGIN; ` + insert(1, `'"prepared first"'`) + `PREPARE TRANSACTION 'walrelay_record_1'`,
			`BEGIN; ` + insert(2, `'"rolled back"'`) + `PREPARE TRANSACTION 'walrelay_record_2'`,
			insert(3, `'"committed between"'`),
			`COMMIT PREPARED 'walrelay_record_1'`,
			`ROLLBACK PREPARED 'walrelay_record_2'`,
		}},
		{name: "outbox_partitioned", setup: `CREATE TABLE outbox (id bigint, event_id uuid, aggregate_type text, aggregate_id text,
				event_type text, payload jsonb, created_at timestamptz NOT NULL) PARTITION BY RANGE (created_at);
			CREATE TABLE outbox_a PARTITION OF outbox FOR VALUES FROM ('2026-01-01+00') TO ('2026-02-01+00');
			CREATE TABLE outbox_b (payload jsonb, gone int, event_id uuid, id bigint, created_at timestamptz NOT NULL, event_type text,
				aggregate_id text, aggregate_type text);
			ALTER TABLE outbox_b DROP COLUMN gone;
			ALTER TABLE outbox ATTACH PARTITION outbox_b FOR VALUES FROM ('2026-02-01+00') TO ('2026-03-01+00');` + published, steps: []string{
			`INSERT INTO outbox VALUES (1, '00000000-0000-4000-8000-000000000001', 'order', 'o-1', 'created', '1', '2026-01-15 00:00:00+00'),
				(2, '00000000-0000-4000-8000-000000000002', 'order', 'o-2', 'created', '2', '2026-02-15 00:00:00+00')`,
			`TRUNCATE outbox`,
		}},
		{name: "outbox_empty", setup: native("jsonb"), steps: []string{
			`INSERT INTO other VALUES (1)`, insert(1, `'{}'`), `CREATE TABLE third (); DROP TABLE third`, insert(2, `'{}'`),
		}},
		{name: "outbox_message", setup: native("jsonb"), steps: []string{
			`SELECT pg_logical_emit_message(true, 'walrelay', 'alone')`,
			`BEGIN; ` + insert(1, `'{}'`) + `SELECT pg_logical_emit_message(true, 'walrelay', 'inside');
				SELECT pg_logical_emit_message(false, 'walrelay', 'in front'); ` + insert(2, `'{}'`) + `COMMIT`,
			`SELECT pg_logical_emit_message(false, '', '\x00ff'::bytea)`,
		}},
	}
}
