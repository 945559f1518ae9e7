package pgfake

import (
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"walrelay/outbox"
)

// Catalog is what the relay's statements see of the server besides table, slots and WAL. The zero
// value is a server on which everything is as it should be.
type Catalog struct {
	WALLevel       string // "": logical
	Recovery       bool
	TableGone      bool
	TableOID       uint32 // 0: that of Config
	NoPublication  bool
	NoInserts      bool   // the publication does not publish inserts
	RowFilter      string // of the publication
	MissingColumns []string
	SyncState      string // of the walsender; "": async
	SafeWALSize    *int64 // nil: max_slot_wal_keep_size is not set
}

// Change changes the catalog.
func (s *Server) Change(f func(*Catalog)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.catalog)
}

const pgLSN = 3220 // type pg_lsn; a client that does not know it asks for text

// relay registers the statements that the relay sends, each by its tag. Their columns are those of
// the relay's own SQL.
func (s *Server) relay() {
	const (
		text, boolean, oid, int8 = pgtype.TextOID, pgtype.BoolOID, pgtype.OIDOID, pgtype.Int8OID
	)
	s.Handle(Statement{
		Match: Tagged("server"),
		Columns: []Column{{"version", pgtype.Int4OID}, {"database", text}, {"recovery", boolean}, {"wal_level", text},
			{"oid", oid}, {"may_select", boolean}, {"may_mark", boolean}, {"may_lock", boolean}, {"may_delete", boolean}, {"indexed", boolean}},
		Run: s.serverInfo,
	})
	s.Handle(Statement{
		Match: Tagged("columns"), Params: []uint32{oid},
		Columns: []Column{{"attname", text}, {"type", oid}},
		Run:     s.columnsInfo,
	})
	s.Handle(Statement{
		Match: Tagged("watch"), Params: []uint32{text, text, text, text, text, pgtype.TextArrayOID},
		Columns: []Column{{"oid", oid}, {"current", pgLSN}, {"publication", boolean}, {"pubinsert", boolean}, {"pubviaroot", boolean},
			{"member", boolean}, {"rowfilter", text}, {"missing", pgtype.TextArrayOID},
			{"slot", boolean}, {"plugin", text}, {"two_phase", boolean}, {"slot_database", text}, {"active_pid", pgtype.Int4OID},
			{"confirmed_flush_lsn", pgLSN}, {"restart_lsn", pgLSN}, {"wal_status", text}, {"safe_wal_size", int8},
			{"invalidation_reason", text}, {"sync_state", text}},
		Run: s.watchInfo,
	})
	s.Handle(Statement{Match: Tagged("unmarked"), Columns: []Column{{"count", int8}}, Run: s.unmarkedInfo})
	s.Handle(Statement{Match: Tagged("confirmed"), Columns: []Column{{"confirmed_flush_lsn", pgLSN}}, Run: s.confirmedInfo})
	s.Handle(Statement{Match: Tagged("publication"), Run: s.createPublication})
	s.Handle(Statement{Match: Tagged("blocker"), Columns: []Column{{"what", text}}, Run: s.blockerInfo})
	s.Handle(Statement{
		Match: Tagged("given-up"), Params: []uint32{int8, pgtype.UUIDOID},
		Columns: []Column{{"marked", boolean}},
		Run:     s.givenUp,
	})
	s.Handle(Statement{
		Match: Tagged("settled"), Params: []uint32{int8, pgtype.UUIDOID},
		Columns: []Column{{"settled", boolean}},
		Run:     s.settledInfo,
	})
	s.Handle(Statement{
		Match:   Tagged("settle"),
		Columns: []Column{{"n", int8}, {"marked", boolean}, {"snapshot", text}},
		Run:     settleUntouched,
	})
}

func (s *Server) serverInfo(*Call) ([][]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	level := s.catalog.WALLevel
	if level == "" {
		level = "logical"
	}
	minor := map[int]int32{14: 24, 15: 19, 16: 15, 17: 11, 18: 6}[s.cfg.Major]
	row := []any{int32(s.cfg.Major)*10000 + minor, s.cfg.Database, s.catalog.Recovery, level, s.tableOIDLocked(), true, true, true, true, true}
	if s.catalog.TableGone {
		row[4], row[5], row[6], row[7], row[8] = nil, nil, false, nil, nil
	}
	return [][]any{row}, nil
}

func (s *Server) tableOIDLocked() uint32 {
	if s.catalog.TableOID != 0 {
		return s.catalog.TableOID
	}
	return s.cfg.TableOID
}

func (s *Server) columnsInfo(*Call) ([][]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rows [][]any
	for _, col := range s.table.shape.columns {
		rows = append(rows, []any{col.name, col.oid})
	}
	return rows, nil
}

func (s *Server) watchInfo(c *Call) ([][]any, error) {
	var name string
	if err := c.Scan(4, &name); err != nil {
		return nil, err
	}
	slot, exists := s.Slot(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	cat := &s.catalog
	table, publication := s.tableOIDLocked(), !cat.NoPublication
	if cat.TableGone {
		table = 0
	}
	missing := cat.MissingColumns
	if missing == nil {
		missing = []string{}
	}
	safe, reason, sync := int64(-1), "", ""
	if cat.SafeWALSize != nil {
		safe = *cat.SafeWALSize
	}
	if s.cfg.Major >= 17 {
		reason = slot.InvalidationReason
	}
	if slot.ActivePID != 0 {
		if sync = cat.SyncState; sync == "" {
			sync = "async"
		}
	}
	return [][]any{{
		table, s.wal.insert.String(), publication, publication && !cat.NoInserts, publication,
		publication && s.table.published, cat.RowFilter, missing,
		exists, slot.Plugin, false, slot.Database, int32(slot.ActivePID),
		slot.ConfirmedFlushLSN.String(), slot.RestartLSN.String(), slot.WALStatus, safe,
		reason, sync,
	}}, nil
}

// await waits while the application has locked the table.
func (s *Server) await(c *Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.Conn.waitLocked(func() bool { return !s.table.locked })
}

func (s *Server) unmarkedInfo(c *Call) ([][]any, error) {
	if err := s.await(c); err != nil {
		return nil, err
	}
	return [][]any{{int64(s.Unmarked())}}, nil
}

var slotLiteral = regexp.MustCompile(`slot_name = '([^']*)'`)

func (s *Server) confirmedInfo(c *Call) ([][]any, error) {
	m := slotLiteral.FindStringSubmatch(c.SQL)
	if m == nil {
		return nil, &Error{Code: "42601", Message: "pgfake finds no slot name in: " + c.SQL}
	}
	slot, ok := s.Slot(m[1])
	if !ok {
		return nil, nil
	}
	return [][]any{{slot.ConfirmedFlushLSN.String()}}, nil
}

func (s *Server) createPublication(c *Call) ([][]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.catalog.NoPublication, s.catalog.NoInserts, s.catalog.RowFilter = false, false, ""
	s.table.published = true
	s.writeOtherLocked(true)
	c.Tag = "CREATE PUBLICATION"
	return nil, nil
}

func (s *Server) blockerInfo(*Call) ([][]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.running) == 0 {
		return nil, nil
	}
	return [][]any{{"pid 4242 of app in database app"}}, nil
}

func (s *Server) givenUp(c *Call) ([][]any, error) {
	var id int64
	var event [16]byte
	if err := c.Scan(0, &id); err != nil {
		return nil, err
	}
	if err := c.Scan(1, &event); err != nil {
		return nil, err
	}
	if err := s.await(c); err != nil {
		return nil, err
	}
	st, ok := s.Row(id)
	if !ok || !st.Visible || st.Row.EventID != event {
		return nil, nil
	}
	return [][]any{{!st.Marked.IsZero()}}, nil
}

// settledInfo answers as givenUp does, but says of every row that is there that it is not settled where
// the relay deletes.
func (s *Server) settledInfo(c *Call) ([][]any, error) {
	rows, err := s.givenUp(c)
	if len(rows) == 1 && strings.Contains(c.SQL, "SELECT false") {
		rows[0][0] = false
	}
	return rows, err
}

// settleUntouched answers the relay's settle statement: a row for each input that it did not touch.
func settleUntouched(c *Call) ([][]any, error) {
	var ids []int64
	var uuids [][16]byte
	if err := c.Scan(0, &ids); err != nil {
		return nil, err
	}
	if err := c.Scan(1, &uuids); err != nil {
		return nil, err
	}
	events := make([]outbox.EventID, len(uuids))
	for i, u := range uuids {
		events[i] = u
	}
	after := Mark
	if strings.Contains(strings.ToLower(c.SQL), "delete from") {
		after = Delete
	}
	out, err := c.Settle(ids, events, after)
	if err != nil {
		return nil, err
	}
	var rows [][]any
	for _, i := range out.Marked {
		rows = append(rows, []any{int64(i + 1), true, nil})
	}
	for _, i := range out.Locked {
		rows = append(rows, []any{int64(i + 1), false, nil})
	}
	snapshot := out.Snapshot.String()
	for _, i := range out.Absent {
		rows = append(rows, []any{int64(i + 1), nil, snapshot})
	}
	return rows, nil
}
