-- makes: table {{.Table}}
--
-- The outbox. A service inserts into it in the transaction that changes its own tables; walrelay
-- publishes what is committed.

create table {{.TableSQL}} (
  -- Rows are settled by id and, where order by commit cannot be had, published in its order.
  {{.Col.ID}} bigint generated always as identity primary key,
  -- What consumers recognise an event by, also after it was published twice.
  {{.Col.EventID}} uuid not null default gen_random_uuid() unique,
  {{.Col.AggregateType}} text not null,
  -- The record key where partition_key is NULL: events of one aggregate keep their order.
  {{.Col.AggregateID}} text not null,
  {{.Col.EventType}} text not null,
  -- NULL is a tombstone. jsonb is normalised by PostgreSQL: choose json, text or bytea at
  -- "walrelay migrate up --payload" where the writer's bytes matter.
  {{.Col.Payload}} {{.Payload}},
  -- Each entry becomes a Kafka header.
  {{.Col.Headers}} jsonb check (jsonb_typeof({{.Col.Headers}}) = 'object'),
  -- The topic, when the writer wants to choose it.
  {{.Col.Topic}} text,
  {{.Col.PartitionKey}} text,
  {{.Col.CreatedAt}} timestamptz not null default now(),
  -- Set by walrelay (RELAY_AFTER_PUBLISH=mark). A writer that sets it says "do not publish".
  {{.Col.PublishedAt}} timestamptz
) with (
  -- A queue turns over its rows: vacuum by their number and not by a share of the table, which grows
  -- with the published rows that are kept.
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_analyze_scale_factor = 0.02,
  -- Giving pages back to the file system takes an exclusive lock, and the queue needs them again.
  vacuum_truncate = false,
  toast.autovacuum_vacuum_scale_factor = 0,
  toast.autovacuum_vacuum_threshold = 10000,
  toast.vacuum_truncate = false
);

-- What is not published yet, in order; empty most of the time.
create index {{.UnpublishedIndex}} on {{.TableSQL}} ({{.Col.ID}})
  where {{.Col.PublishedAt}} is null;
