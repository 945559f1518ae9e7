package decoder

import (
	"fmt"
	"strings"
)

// relation is the table as its last Relation message described it: which column plays which role.
// One column may play several. Nothing of it aliases the message.
type relation struct {
	id    uint32 // 0 until the table has been described
	slots []int8 // per column: where its value goes in Decoder.row, -1 for a column of no use
	roles [roleCount]struct {
		slot int8 // -1: the table has no such column
		typ  pgType
	}
	unfit *ShapeError // the table cannot serve; a row of it is this error again
}

// is reports whether id is that of the table. No relation has the id 0.
func (r *relation) is(id uint32) bool { return id != 0 && r.id == id }

// decodeRelation notes who a relation is. PostgreSQL sends it before the first row in a session and
// again after each change, in the middle of a transaction too; a table may come back under another
// name (then it is ours no more) and another table under ours (then that is it).
func (d *Decoder) decodeRelation(r *reader) error {
	id := r.uint32("relation id")
	schema, name := r.string("schema"), r.string("name")
	r.byte("replica identity")
	columns := int(r.uint16("number of columns"))
	if !r.ok() {
		return r.err(KindRelation)
	}
	if id == 0 {
		return malformed(KindRelation, 1, "relation id is 0")
	}
	ours := string(schema) == d.table.Schema && string(name) == d.table.Name
	body := *r
	for range columns {
		r.column()
	}
	r.end()
	if !r.ok() {
		return r.err(KindRelation)
	}
	if !ours {
		if d.relation.is(id) {
			d.relation = relation{}
		}
		d.others[id] = struct{}{}
		return nil
	}
	if d.relation.id != 0 && d.relation.id != id {
		d.others[d.relation.id] = struct{}{}
	}
	delete(d.others, id)
	d.other = 0
	d.relation = d.describe(id, columns, body)
	if d.relation.unfit != nil {
		return d.relation.unfit
	}
	return nil
}

// column reads one column of a Relation message.
func (r *reader) column() (name []byte, oid uint32) {
	r.byte("column flags")
	name = r.string("column name")
	oid = r.uint32("column type")
	r.uint32("column type modifier")
	return name, oid
}

// describe finds the columns by name. body stands at the first column and has been checked.
func (d *Decoder) describe(id uint32, columns int, body reader) relation {
	rel := relation{id: id, slots: make([]int8, columns)}
	for i := range rel.roles {
		rel.roles[i].slot = -1
	}
	slots := int8(0)
	names := body
	for i := range columns {
		rel.slots[i] = -1
		name, oid := body.column()
		for role := range roleCount {
			// Of two columns with one name, which no table has, the first counts: so there are never
			// more slots than roles.
			if d.columns[role] != string(name) || rel.roles[role].slot >= 0 {
				continue
			}
			if rel.slots[i] < 0 {
				rel.slots[i] = slots
				slots++
			}
			rel.roles[role].slot, rel.roles[role].typ = rel.slots[i], d.typeOf(oid)
			if need := requirementOf(role); !need.fits.has(rel.roles[role].typ) && rel.unfit == nil {
				rel.unfit = d.unfit(role, need)
				rel.unfit.Found = d.typeName(oid)
			}
		}
	}
	for role := range roleCount {
		need := requirementOf(role)
		if need.required && rel.roles[role].slot < 0 && rel.unfit == nil {
			rel.unfit = d.unfit(role, need)
			rel.unfit.Missing = true
			rel.unfit.Found = listColumns(names, columns)
		}
	}
	return rel
}

func (d *Decoder) unfit(r role, need requirement) *ShapeError {
	return &ShapeError{
		Table:    d.table,
		Column:   d.columns[r],
		Variable: need.variable,
		Want:     need.want,
		Optional: !need.required,
	}
}

// listColumns names the columns for an error, the first few of many.
func listColumns(body reader, columns int) string {
	const most = 20
	var list []string
	for i := range columns {
		if i == most {
			list = append(list, fmt.Sprintf("and %d more", columns-most))
			break
		}
		name, _ := body.column()
		list = append(list, string(name))
	}
	if len(list) == 0 {
		return "no column"
	}
	return strings.Join(list, ", ")
}

// Bounds of what is remembered of Type messages: they come in front of the Relation that needs them,
// at most one per column, and a table has at most 1600 columns.
const (
	maxTypes    = 1600
	maxTypeName = 63
)

// decodeType notes the base type of a domain. PostgreSQL sends a Type for every column type whose
// id is not fixed, with the domain's own id and the name of its base type, and names the catalogue by
// an empty schema. Any other type stays typeUser.
func (d *Decoder) decodeType(r *reader) {
	id := r.uint32("type id")
	schema, name := r.string("schema"), r.string("name")
	r.end()
	if !r.ok() || id < firstUnfixedOID {
		return
	}
	if len(schema) > 0 || len(name) > maxTypeName {
		delete(d.types, id)
		return
	}
	if len(d.types) >= maxTypes {
		clear(d.types)
	}
	d.types[id] = string(name)
}
