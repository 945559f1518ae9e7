package environment

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"walrelay/internal/localdev"
	"walrelay/test/harness"
	"walrelay/test/harness/oracle"
	"walrelay/test/integration/fixture"
)

// A publication's name is an identifier in a list in a string in a command.
func TestNameOfThePublication(t *testing.T) {
	t.Parallel()
	for _, name := range []string{`it's, "quoted"`, `Größe \ 100 %`, "select"} {
		f := fixture.New(t, fixture.Set("REPLICATION_PUBLICATION", name), fixture.Set("REPLICATION_SLOT", "0"+harness.Name(t)))
		r := f.Relay(t).Ready(t)
		w := f.Writer(t)
		write(t, w, 3)
		f.Events(t, 3)
		r.Stop(t)
		if v := f.Verify(t, w.Committed()); v.Duplicates > 0 || r.Reconnects(t) > 0 {
			t.Errorf("%q: %d events were published twice, %d reconnects", name, v.Duplicates, r.Reconnects(t))
		}
		f.DB.Eventually(fixture.Within(t, fixture.Limit), t, "0", "SELECT count(*) FROM outbox WHERE published_at IS NULL")
	}
}

// The stream counts transactions with 32 bits, snapshots with 64. They differ on a server that has
// seen four thousand million transactions.
func TestTransactionsBeyond32Bits(t *testing.T) {
	t.Parallel()
	server := harness.Fresh(t, harness.NoSync())
	control := server.Control()
	postgres, err := filepath.EvalSymlinks(filepath.Join(control.Binaries().Dir, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	reset := filepath.Join(filepath.Dir(postgres), "pg_resetwal") // beside the server; fetched binaries come without it
	if _, err := os.Stat(reset); err != nil {
		harness.Skip(t, "transactions beyond 32 bits", err.Error())
	}
	ctx := fixture.Within(t, fixture.Limit)
	if err := control.Stop(ctx, localdev.Fast); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(control.Dir(), "data")
	cmd := exec.Command(reset, "-e", "7", data)
	if os.Getuid() == 0 { // pg_resetwal refuses root
		cmd = exec.Command("setpriv", "--reuid=nobody", "--clear-groups", reset, "-e", "7", data)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		harness.Skip(t, "transactions beyond 32 bits", string(out)+err.Error())
	}
	if err := control.Start(ctx); err != nil {
		t.Fatal(err)
	}
	f := fixture.New(t, fixture.On(server))
	if got := f.DB.Text(t, "SELECT pg_current_xact_id()::text::bigint > 7 * 4294967296"); got != "t" {
		t.Fatal("the transactions are not beyond 32 bits")
	}
	r := f.Relay(t).Ready(t)
	committed := oracle.Load{Rows: 3, Until: 300}.Run(ctx, t, f.DB, f.Table)
	// A row that is gone before it can be settled is told apart from one that is not visible yet by the
	// number of its transaction.
	f.DB.Exec(t, "BEGIN; INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', '1', 'created', '{}'); DELETE FROM outbox WHERE aggregate_id = '1'; COMMIT")
	f.Events(t, len(committed)+1)
	f.Settled(t)
	r.Stop(t)
	if n := r.Metric(t, "walrelay_rows_removed_total"); n != 1 {
		t.Errorf("%v rows were removed by the application, want 1", n)
	}
}
