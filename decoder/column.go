package decoder

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"walrelay/outbox"
)

// role is what a column is to an outbox row.
type role uint8

const (
	roleID role = iota
	roleEventID
	roleAggregateType
	roleAggregateID
	roleEventType
	rolePayload
	roleHeaders
	roleTopic
	rolePartitionKey
	roleCreatedAt
	rolePublishedAt
	roleCount

	lastNotNull = roleEventType // the roles up to here need a value in every row
)

// pgType is a type as far as its text and binary forms matter here.
type pgType uint8

const (
	typeOther pgType = iota // a type of the catalogue that has no use here
	typeText                // also varchar, bpchar and name: one form, the characters themselves
	typeUser                // of no known form: taken as text, which an enum or citext is in either form
	typeInt2
	typeInt4
	typeInt8
	typeUUID
	typeJSON
	typeJSONB
	typeBytea
	typeTimestamp
	typeTimestamptz
)

// typeSet has a bit per pgType.
type typeSet uint16

func setOf(types ...pgType) typeSet {
	var s typeSet
	for _, t := range types {
		s |= 1 << t
	}
	return s
}

func (s typeSet) has(t pgType) bool { return s&(1<<t) != 0 }

// requirement says which column types can play a role.
type requirement struct {
	variable string
	required bool // the column must be there
	fits     typeSet
	want     string // fits, in words
}

// requirementOf is a function and not a table because a package keeps no state.
func requirementOf(r role) requirement {
	const textWant = "text, varchar, char, an enum or a domain over one of them"
	text := setOf(typeText, typeUser)
	key := text | setOf(typeUUID, typeInt8, typeInt4, typeInt2)
	time := setOf(typeTimestamptz, typeTimestamp)
	switch r {
	case roleID:
		return requirement{"OUTBOX_COLUMN_ID", true, setOf(typeInt8, typeInt4, typeInt2), "bigint, integer or smallint"}
	case roleEventID:
		return requirement{"OUTBOX_COLUMN_EVENT_ID", true, text | setOf(typeUUID), "uuid (or text that holds one)"}
	case roleAggregateType:
		return requirement{"OUTBOX_COLUMN_AGGREGATE_TYPE", true, text, textWant}
	case roleAggregateID:
		return requirement{"OUTBOX_COLUMN_AGGREGATE_ID", true, key, "text, varchar, char, uuid, bigint or integer"}
	case roleEventType:
		return requirement{"OUTBOX_COLUMN_EVENT_TYPE", true, text, textWant}
	case rolePayload:
		return requirement{"OUTBOX_COLUMN_PAYLOAD", true, text | setOf(typeJSONB, typeJSON, typeBytea), "jsonb, json, text, varchar or bytea"}
	case roleHeaders:
		return requirement{"OUTBOX_COLUMN_HEADERS", false, setOf(typeJSONB, typeJSON), "jsonb or json"}
	case roleTopic:
		return requirement{"OUTBOX_COLUMN_TOPIC", false, text, textWant}
	case rolePartitionKey:
		return requirement{"OUTBOX_COLUMN_PARTITION_KEY", false, key, "text, varchar, char, uuid, bigint or integer"}
	case roleCreatedAt:
		return requirement{"OUTBOX_COLUMN_CREATED_AT", false, time, "timestamptz (or timestamp, taken as UTC)"}
	default:
		return requirement{"OUTBOX_COLUMN_PUBLISHED_AT", false, time, "timestamptz or timestamp"}
	}
}

func columnsByRole(c outbox.Columns) [roleCount]string {
	return [roleCount]string{
		roleID:            c.ID,
		roleEventID:       c.EventID,
		roleAggregateType: c.AggregateType,
		roleAggregateID:   c.AggregateID,
		roleEventType:     c.EventType,
		rolePayload:       c.Payload,
		roleHeaders:       c.Headers,
		roleTopic:         c.Topic,
		rolePartitionKey:  c.PartitionKey,
		roleCreatedAt:     c.CreatedAt,
		rolePublishedAt:   c.PublishedAt,
	}
}

// firstUnfixedOID is FirstGenbkiObjectId of PostgreSQL: the types below have the same id everywhere,
// and for all others pgoutput sends a Type message.
const firstUnfixedOID = 10000

// typeOf resolves a column's type. A domain comes with a Type message that names its base type.
func (d *Decoder) typeOf(oid uint32) pgType {
	if oid < firstUnfixedOID {
		return typeByOID(oid)
	}
	if name, ok := d.types[oid]; ok {
		return typeByName(name)
	}
	return typeUser
}

func typeByOID(oid uint32) pgType {
	switch oid {
	case pgtype.TextOID, pgtype.VarcharOID, pgtype.BPCharOID, pgtype.NameOID:
		return typeText
	case pgtype.Int2OID:
		return typeInt2
	case pgtype.Int4OID:
		return typeInt4
	case pgtype.Int8OID:
		return typeInt8
	case pgtype.UUIDOID:
		return typeUUID
	case pgtype.JSONOID:
		return typeJSON
	case pgtype.JSONBOID:
		return typeJSONB
	case pgtype.ByteaOID:
		return typeBytea
	case pgtype.TimestampOID:
		return typeTimestamp
	case pgtype.TimestamptzOID:
		return typeTimestamptz
	}
	return typeOther
}

// typeByName is typeByOID for the base type of a domain, which is sent by name only.
func typeByName(name string) pgType {
	switch name {
	case "text", "varchar", "bpchar", "name":
		return typeText
	case "int2":
		return typeInt2
	case "int4":
		return typeInt4
	case "int8":
		return typeInt8
	case "uuid":
		return typeUUID
	case "json":
		return typeJSON
	case "jsonb":
		return typeJSONB
	case "bytea":
		return typeBytea
	case "timestamp":
		return typeTimestamp
	case "timestamptz":
		return typeTimestamptz
	}
	return typeOther
}

// typeName names a type for an error.
func (d *Decoder) typeName(oid uint32) string {
	if name, ok := d.types[oid]; ok {
		return fmt.Sprintf("a domain over %s", name)
	}
	if t, ok := pgtype.NewMap().TypeForOID(oid); ok {
		return t.Name
	}
	if oid < firstUnfixedOID {
		return fmt.Sprintf("oid %d", oid)
	}
	return fmt.Sprintf("a type of its own (oid %d)", oid)
}
