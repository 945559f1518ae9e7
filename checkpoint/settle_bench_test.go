package checkpoint

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"walrelay/test/harness"
)

// BenchmarkSettle: batches of 2,000 rows of 300 bytes, acknowledged in the order of their ids.
//
//	go test -run '^$' -bench Settle -benchtime 100x ./checkpoint
func BenchmarkSettle(b *testing.B) {
	const batch = 2000
	for _, after := range []AfterPublish{Mark, Delete} {
		b.Run(string(after), func(b *testing.B) {
			x := newTable(b, harness.Postgres(b), plainTable, after)
			x.exec(x.app, `insert into "Outbox events" (aggregate_id, payload)
				select n::text, jsonb_build_object('text', repeat('x', 280)) from generate_series(1, $1::int) n`, b.N*batch)
			rows, err := x.app.Query(b.Context(), `select seq, uid, 0::bigint from "Outbox events" order by seq`)
			if err != nil {
				b.Fatal(err)
			}
			pending, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Pending, err error) {
				var event [16]byte
				err = row.Scan(&p.Row.RowID, &event, nil)
				p.Row.EventID = event
				return p, err
			})
			if err != nil {
				b.Fatal(err)
			}
			x.exec(x.app, "checkpoint")
			out := make([]Outcome, 0, batch)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				out, err = x.settler.Settle(b.Context(), pending[i*batch:(i+1)*batch], out[:0])
				if err != nil {
					b.Fatal(err)
				}
				for _, o := range out {
					if o != Touched {
						b.Fatalf("a row is %s", o)
					}
				}
			}
			b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
