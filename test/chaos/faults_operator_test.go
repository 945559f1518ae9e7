package chaos

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"walrelay/outbox"
	"walrelay/test/integration/fixture"
)

// What only a person can mend in this version: the relay must end with exit code 1 and say why, and
// what it says to type must be enough.
func operatorFaults() []fault {
	return []fault{
		{"slot dropped while down", long, true, func(w *world, _ *rand.Rand) {
			w.inject("slot dropped while down", "")
			w.lives()
			w.relay.Kill(w.t)
			w.dropSlot()
			w.startAnew()
		}},
		{"WAL limit exceeded", long, true, func(w *world, r *rand.Rand) {
			streaming := r.IntN(2) == 0
			w.inject("WAL limit exceeded", "under the stream: %v", streaming)
			w.lives()
			if streaming {
				w.f.Kafka.Proxy.Pause() // nothing is confirmed
			} else {
				w.relay.Kill(w.t)
			}
			w.loseSlot()
			if streaming {
				w.f.Kafka.Proxy.Resume()
			} else {
				w.start()
			}
			w.refuses(fmt.Sprintf("slot %q is lost", w.f.Slot), fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", w.f.Slot))
			w.dropSlot()
			w.startAnew()
		}},
		{"poison row", long, false, poisonRow},
	}
}

const unmarked = "SELECT count(*) FROM outbox WHERE published_at IS NULL"

// refuses waits until the relay has ended with exit code 1 and the words.
func (w *world) refuses(words ...string) {
	w.t.Helper()
	w.remember()
	code, log := w.relay.Code(w.t), w.relay.Log()
	for _, word := range words {
		if code != 1 || !strings.Contains(log, word) {
			w.broke(nothingDropped, "the relay ended with exit code %d, want 1 and %q:\n%s", code, word, tail(log))
		}
	}
}

// startAnew starts the relay where no slot is, and rows are left that no new slot would stream. It must
// refuse; the operator stops the services, gives the rows up, and starts it again.
func (w *world) startAnew() {
	w.f.DB.Eventually(fixture.Within(w.t, fixture.Limit), w.t, "f", "SELECT count(*) = 0 FROM outbox WHERE published_at IS NULL")
	w.start()
	w.refuses(fmt.Sprintf("slot %q does not exist", w.f.Slot), "unpublished row", `UPDATE "public"."outbox" SET "published_at" = now() WHERE "published_at" IS NULL`)
	w.writing.Lock() // until no transaction is open
	defer w.writing.Unlock()
	rows, err := w.f.DB.Connect(w.t).Query(w.t.Context(), `UPDATE "public"."outbox" SET "published_at" = now() WHERE "published_at" IS NULL RETURNING event_id`)
	if err != nil {
		w.t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id outbox.EventID, err error) {
		err = row.Scan((*[16]byte)(&id))
		return id, err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	given := make(map[outbox.EventID]bool, len(ids))
	for _, id := range ids {
		given[id] = true
	}
	w.ledger.excuse(givenUp, func(e *event) bool { return given[e.EventID] })
	w.log("%-28s the operator gives %d rows up", "", len(ids))
	w.start()
	w.relay.Ready(w.t)
}

func (w *world) dropSlot() {
	slot := " FROM pg_replication_slots WHERE slot_name = '" + w.f.Slot + "'"
	w.f.DB.Eventually(fixture.Within(w.t, fixture.Limit), w.t, "f", "SELECT active"+slot)
	w.f.DB.Exec(w.t, "SELECT pg_drop_replication_slot(slot_name)"+slot)
}

// loseSlot has the server throw away WAL that the slot needs.
func (w *world) loseSlot() {
	w.f.DB.Exec(w.t, "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
	w.f.DB.Exec(w.t, "SELECT pg_reload_conf()")
	err := until(fixture.Within(w.t, fixture.Limit), "the slot is lost", func() (bool, string) {
		w.f.DB.Exec(w.t, "SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000))")
		w.f.DB.Exec(w.t, "SELECT pg_switch_wal()")
		w.f.DB.Exec(w.t, "CHECKPOINT")
		status := w.f.DB.Text(w.t, "SELECT wal_status FROM pg_replication_slots WHERE slot_name = '"+w.f.Slot+"'")
		return status == "lost", status
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.f.DB.Exec(w.t, "ALTER SYSTEM RESET max_slot_wal_keep_size")
	w.f.DB.Exec(w.t, "SELECT pg_reload_conf()")
}

// poisonRow writes an event that can never be published. The relay halts at it by name; the operator
// gives it up with the statement that the relay prints.
func poisonRow(w *world, r *rand.Rand) {
	what, sql := "illegal topic", `'{}', 'not a topic'`
	if r.IntN(2) == 0 {
		what, sql = "too large", `to_jsonb(repeat('x', 1100000)), NULL`
	}
	w.inject("poison row", "%s", what)
	w.lives()
	id := w.f.DB.Text(w.t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, topic) SELECT 'Order', 'poison', 'OrderPlaced', "+sql+" RETURNING event_id")
	w.poison = append(w.poison, id)
	w.refuses(id, "cannot be published")
	giveUp := regexp.MustCompile(`UPDATE "public"\."outbox" SET "published_at" = now\(\) WHERE "id" = \d+`).FindString(w.relay.Log())
	if giveUp == "" {
		w.broke(nothingDropped, "the relay does not say how to give event %s up:\n%s", id, tail(w.relay.Log()))
		return
	}
	w.f.DB.Exec(w.t, giveUp)
	w.start()
	if w.mode == polling {
		return // a poll does not come by a row that is marked
	}
	err := until(fixture.Within(w.t, fixture.Limit), "the relay says that it gives the event up", func() (bool, string) {
		return strings.Contains(w.relay.Log(), "event given up"), tail(w.relay.Log())
	})
	if err != nil {
		w.broke(nothingDropped, "%v", err)
	}
}
