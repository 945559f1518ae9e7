package decoder

import "fmt"

// Kind is the first byte of a pgoutput message.
type Kind uint8

// The messages of protocol version 1. Update and Delete are named and passed over: what they hold is
// not looked at.
const (
	KindBegin    Kind = 'B'
	KindCommit   Kind = 'C'
	KindRelation Kind = 'R'
	KindInsert   Kind = 'I'
	KindTruncate Kind = 'T'
	KindMessage  Kind = 'M'
	KindOrigin   Kind = 'O'
	KindType     Kind = 'Y'
	KindUpdate   Kind = 'U'
	KindDelete   Kind = 'D'
)

func (k Kind) String() string {
	switch k {
	case KindBegin:
		return "begin"
	case KindCommit:
		return "commit"
	case KindRelation:
		return "relation"
	case KindInsert:
		return "insert"
	case KindTruncate:
		return "truncate"
	case KindMessage:
		return "message"
	case KindOrigin:
		return "origin"
	case KindType:
		return "type"
	case KindUpdate:
		return "update"
	case KindDelete:
		return "delete"
	}
	return fmt.Sprintf("kind %q", byte(k))
}
