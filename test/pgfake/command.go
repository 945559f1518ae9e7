package pgfake

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// command answers a replication command; handled is false for everything else, which is SQL.
func (c *Conn) command(sql string) (handled bool, err error) {
	words := lex(bare(sql))
	if len(words) == 0 {
		return false, nil
	}
	switch strings.ToUpper(words[0]) {
	case "IDENTIFY_SYSTEM":
		return true, c.identifySystem()
	case "TIMELINE_HISTORY":
		return true, c.timelineHistory(words)
	case "SHOW":
		return true, c.show(words)
	case "CREATE_REPLICATION_SLOT":
		return true, c.createSlotCommand(words)
	case "DROP_REPLICATION_SLOT":
		return true, c.dropSlotCommand(words)
	case "START_REPLICATION":
		return true, c.startReplication(words)
	}
	return false, nil
}

var token = regexp.MustCompile(`"(?:[^"]|"")*"|'(?:[^']|'')*'|[0-9A-Fa-f]+/[0-9A-Fa-f]+|\w+|[(),]`)

// lex cuts a replication command into words; quotes are taken off.
func lex(sql string) []string {
	words := token.FindAllString(sql, -1)
	for i, w := range words {
		if q := w[:1]; q == `"` || q == "'" {
			words[i] = strings.ReplaceAll(w[1:len(w)-1], q+q, q)
		}
	}
	return words
}

func syntaxError(words []string) *Error {
	return &Error{Code: "42601", Message: "syntax error", Detail: strings.Join(words, " ")}
}

// reply sends a result of one row.
func (c *Conn) reply(tag string, columns []Column, row ...any) error {
	c.send(fields(columns, nil))
	if err := c.sendRows(columns, nil, [][]any{row}); err != nil {
		return err
	}
	c.send(&pgproto3.CommandComplete{CommandTag: []byte(tag)})
	return nil
}

func (c *Conn) identifySystem() error {
	timeline := uint32(pgtype.Int4OID)
	if c.s.cfg.Major >= 16 {
		timeline = pgtype.Int8OID
	}
	c.s.mu.Lock()
	tli, flush := c.s.timeline, c.s.wal.flush
	c.s.mu.Unlock()
	return c.reply("IDENTIFY_SYSTEM",
		[]Column{{"systemid", pgtype.TextOID}, {"timeline", timeline}, {"xlogpos", pgtype.TextOID}, {"dbname", pgtype.TextOID}},
		c.s.cfg.SystemID, int64(tli), flush.String(), c.s.cfg.Database)
}

func (c *Conn) timelineHistory(words []string) error {
	if len(words) != 2 {
		return syntaxError(words)
	}
	n, err := strconv.ParseInt(words[1], 10, 32)
	if err != nil {
		return syntaxError(words)
	}
	c.s.mu.Lock()
	var content strings.Builder
	for _, sw := range c.s.switches {
		if int64(sw.timeline) <= n {
			fmt.Fprintf(&content, "%d\t%s\tno recovery target specified\n", sw.timeline-1, sw.at)
		}
	}
	known := n >= 2 && n <= int64(c.s.timeline)
	c.s.mu.Unlock()
	file := fmt.Sprintf("%08X.history", n)
	if !known {
		return &Error{Code: "58P01", Message: fmt.Sprintf("could not open file \"pg_wal/%s\": No such file or directory", file)}
	}
	return c.reply("TIMELINE_HISTORY", []Column{{"filename", pgtype.TextOID}, {"content", pgtype.TextOID}}, file, content.String())
}

func (c *Conn) show(words []string) error {
	if len(words) != 2 {
		return syntaxError(words)
	}
	return c.reply("SHOW", []Column{{strings.ToLower(words[1]), pgtype.TextOID}}, c.setting(strings.ToLower(words[1])))
}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// createSlotCommand reads both syntaxes: a word on every major, a list in brackets from 15 on.
func (c *Conn) createSlotCommand(words []string) error {
	if len(words) < 4 || !strings.EqualFold(words[2], "LOGICAL") {
		return syntaxError(words)
	}
	failover := false
	for i := 4; i < len(words); i++ {
		switch w := strings.ToUpper(words[i]); {
		case w == "(" && c.s.cfg.Major < 15:
			return syntaxError(words)
		case w == "FAILOVER" && c.s.cfg.Major < 17:
			return &Error{Code: "XX000", Message: "unrecognized option: failover"}
		case w == "FAILOVER":
			failover = i+1 >= len(words) || !strings.EqualFold(words[i+1], "false")
		}
	}
	name := words[1]
	if !slotName.MatchString(name) {
		return &Error{Code: "42602", Message: fmt.Sprintf("replication slot name %q contains invalid character", name)}
	}
	sl, err := c.createSlot(name, words[3], failover)
	if err != nil {
		return err
	}
	text := uint32(pgtype.TextOID)
	return c.reply("CREATE_REPLICATION_SLOT",
		[]Column{{"slot_name", text}, {"consistent_point", text}, {"snapshot_name", text}, {"output_plugin", text}},
		name, sl.origin.String(), nil, sl.plugin)
}

func (c *Conn) dropSlotCommand(words []string) error {
	if len(words) < 2 {
		return syntaxError(words)
	}
	if err := c.dropSlot(words[1], len(words) > 2 && strings.EqualFold(words[2], "WAIT")); err != nil {
		return err
	}
	c.send(&pgproto3.CommandComplete{CommandTag: []byte("DROP_REPLICATION_SLOT")})
	return nil
}

// startReplication is START_REPLICATION SLOT name LOGICAL X/X (options).
func (c *Conn) startReplication(words []string) error {
	if len(words) < 5 || !strings.EqualFold(words[1], "SLOT") || !strings.EqualFold(words[3], "LOGICAL") {
		return syntaxError(words)
	}
	at, err := pglogrepl.ParseLSN(words[4])
	if err != nil {
		return syntaxError(words)
	}
	options := make(map[string]string)
	for i := 5; i+1 < len(words); i++ {
		if words[i] != "(" && words[i] != "," && words[i] != ")" {
			options[strings.ToLower(words[i])] = words[i+1]
			i++
		}
	}
	if err := c.checkOptions(options); err != nil {
		return err
	}
	w, werr := c.acquire(words[2], at)
	if werr != nil {
		return werr
	}
	return w.serve()
}

func (c *Conn) checkOptions(options map[string]string) *Error {
	if v := options["proto_version"]; v != "1" {
		return &Error{Code: "0A000", Message: fmt.Sprintf("pgfake speaks proto_version 1, not %q", v)}
	}
	if options["publication_names"] == "" {
		return &Error{Code: "22023", Message: "publication_names parameter missing"}
	}
	for name, v := range options {
		switch name {
		case "proto_version", "publication_names", "messages":
		case "binary":
			if v == "true" {
				return &Error{Code: "0A000", Message: "pgfake sends text tuples only"}
			}
		default:
			return &Error{Code: "XX000", Message: "unrecognized pgoutput option: " + name}
		}
	}
	return nil
}

// acquire makes the slot this connection's and finds where its stream begins.
func (c *Conn) acquire(name string, at lsn) (*walsender, *Error) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	sl, ok := s.slots[name]
	switch {
	case !ok:
		return nil, noSlot(name)
	case sl.pid() != 0:
		return nil, slotActive(name, sl.pid())
	case sl.database != s.cfg.Database:
		return nil, &Error{Code: "55000", Message: fmt.Sprintf("replication slot %q was not created in this database", name)}
	case sl.lost != "":
		return nil, lostError(s.cfg.Major, name, sl.lost)
	}
	w := newWalsender(c, sl, max(at, sl.confirmed))
	sl.active = c
	c.stream = w
	s.judge.startedLocked(w)
	return w, nil
}
