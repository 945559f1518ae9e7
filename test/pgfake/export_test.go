package pgfake

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"walrelay/outbox"
)

// SettleForTest is the settle model behind the simplest statement, for tests of the model itself.
func SettleForTest(after After) Statement {
	return Statement{
		Match:   Tagged(fmt.Sprintf("test-settle-%d", after)),
		Columns: []Column{{"outcome", pgtype.TextOID}},
		Run: func(c *Call) ([][]any, error) {
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
			out, err := c.Settle(ids, events, after)
			if err != nil {
				return nil, err
			}
			return [][]any{{fmt.Sprintf("touched=%v marked=%v locked=%v absent=%v", out.Touched, out.Marked, out.Locked, out.Absent)}}, nil
		},
	}
}
