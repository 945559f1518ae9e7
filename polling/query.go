package polling

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"walrelay/decoder"
	"walrelay/internal/postgres"
)

const pollName = "walrelay poll"

// squeeze is the most that PostgreSQL's compression makes of a value: one byte of lz4 stands for 255.
// What is stored in fewer bytes than the limit over this cannot be too large, and is not looked into.
const squeeze = 255

// querySQL reads the rows that are not published, lowest id first, as far as they fit into a batch. It
// takes no lock on them, and it is one statement, so that it is one snapshot.
//
// A row is not passed over because somebody has locked it: a later row of its key would overtake it
// (H10). No id is remembered as the highest that was seen: a transaction with a lower one may commit
// later. $1 are the ids that Kafka has and that could not be settled yet, $2 and $3 the bounds.
//
// The sum is over what the values take in storage, which reads none of them. Two columns are about the
// statement itself: who has run it, and which table the name means now.
func querySQL(o *postgres.Outbox, v postgres.Server, columns []decoder.Column, rowLimit int) string {
	ident := func(name string) string { return pgx.Identifier{name}.Sanitize() }
	var inner, outer, stored, weights, large []string
	for _, c := range columns {
		name := ident(c.Name)
		inner = append(inner, name)
		if c.Name != o.Columns.Payload && c.Name != o.Columns.Headers {
			outer = append(outer, "o."+name)
			continue
		}
		stored = append(stored, fmt.Sprintf("coalesce(pg_column_size(%s), 0)", name))
		weights = append(weights, fmt.Sprintf("coalesce(octet_length(o.%s::text), 0)", name))
		outer = append(outer, fmt.Sprintf("case when l.large then null else o.%s end", name))
	}
	large = append(large, fmt.Sprintf("o.stored > %d and %s > %d", rowLimit/squeeze, strings.Join(weights, " + "), rowLimit))
	unmarked := "true"
	if v.HasMark {
		unmarked = ident(o.Columns.PublishedAt) + " is null"
	}
	id := ident(o.Columns.ID)
	return fmt.Sprintf(`/* walrelay:poll */
		select %[1]s, l.large, (select pg_backend_pid()), (select coalesce(to_regclass(%[8]s)::oid::bigint, 0))
		from (
			select q.*, sum(q.stored) over (order by q.%[2]s rows between unbounded preceding and 1 preceding) as before
			from (
				select %[3]s, %[4]s as stored from %[5]s
				where %[6]s and %[2]s not in (select unnest($1::bigint[]))
				order by %[2]s limit $2
			) q
		) o cross join lateral (select %[7]s as large offset 0) l
		where coalesce(o.before, 0) < $3
		order by o.%[2]s`,
		strings.Join(outer, ", "), id, strings.Join(inner, ", "), strings.Join(stored, " + "), o.Table.SQL(), unmarked,
		strings.Join(large, ""), literal(o.Table.SQL()))
}

// literal quotes a string without backslashes of its own meaning (standard_conforming_strings).
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// poll reads one batch; nil is none. more says that the table has more rows than fitted.
func (x *session) poll(ctx context.Context) (b *batch, more bool, err error) {
	ctx, done := postgres.Limited(ctx)
	defer done()
	*x.heard = false // whatever is committed from here on says so again
	began := time.Now()
	args := [][]byte{x.unsettledIDs(), strconv.AppendInt(nil, int64(x.cfg.BatchRows), 10), strconv.AppendInt(nil, int64(x.cfg.BatchBytes), 10)}
	columns := len(x.rows.Columns())
	result := x.conn.PgConn().ExecPrepared(ctx, pollName, args, nil, nil)
	var wrong error
	seen, full := 0, false
	for result.NextRow() {
		values := result.Values()
		if seen++; seen == 1 {
			wrong = x.same(values[columns+1], values[columns+2])
			b = newBatch(x.cfg.BatchRows, columns, x.text)
		}
		// What is compressed in the table may be a multiple here: the rest is left for the next poll.
		if full = full || len(b.text.arena) >= int(x.cfg.BatchBytes); !full && wrong == nil {
			b.add(values[:columns], string(values[columns]) == "t")
		}
	}
	if _, err := result.Close(); err != nil {
		return nil, false, fmt.Errorf("poll: %w", err)
	}
	x.spoke, x.took = time.Now(), time.Since(began)
	x.metrics.polls.Inc()
	x.metrics.batchSeconds.Observe(x.took.Seconds())
	if wrong != nil || b == nil {
		return nil, false, wrong
	}
	x.text = b.text
	x.metrics.batchRows.Observe(float64(len(b.rows)))
	return b, full || seen == x.cfg.BatchRows || len(b.text.arena) >= int(x.cfg.BatchBytes)/2, nil
}

// same checks that the connection still leads to the backend that holds the lock, and the name to the
// table that it is the lock of.
func (x *session) same(pid, oid []byte) error {
	if string(pid) != strconv.Itoa(int(x.pid)) {
		return pooled(x.Outbox.Database)
	}
	if string(oid) != strconv.FormatUint(uint64(x.table), 10) {
		return fmt.Errorf("table %s was dropped or replaced by another table: starting anew", x.Table)
	}
	return nil
}

func (x *session) unsettledIDs() []byte {
	ids := []byte{'{'}
	for i, p := range x.unsettled {
		if i > 0 {
			ids = append(ids, ',')
		}
		ids = strconv.AppendInt(ids, p.Row.RowID, 10)
	}
	return append(ids, '}')
}
