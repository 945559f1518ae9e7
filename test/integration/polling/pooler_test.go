package polling

import (
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"walrelay/test/integration/fixture"
)

// A pooler in transaction mode gives one connection of the server to several clients in turn. A lock
// taken there is everybody's: the relay finds out and refuses.
func TestTransactionPooler(t *testing.T) {
	t.Parallel()
	f := polling(t)
	u, err := url.Parse(f.DB.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Host = pooler(t, f)
	f.Setenv("DATABASE_URL", u.String())
	if err := f.Relay(t).Wait(t); err == nil || !strings.Contains(err.Error(), "is a pooler that shares server connections") || !strings.Contains(err.Error(), "session mode") {
		t.Errorf("the relay ended with %v", err)
	}
}

// pooler is such a pooler with one connection of the server, and returns its address.
func pooler(t *testing.T, f *fixture.Fixture) string {
	t.Helper()
	conn := f.DB.Connect(t)
	hijacked, err := conn.PgConn().Hijack()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pool{server: hijacked}
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			clients.Go(func() {
				defer client.Close()
				_ = p.serve(client) // a client that leaves is an error like any other
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		hijacked.Conn.Close()
		clients.Wait()
	})
	return listener.Addr().String()
}

type pool struct {
	mu     sync.Mutex // whose turn it is
	server *pgconn.HijackedConn
}

// serve lets a client in by itself and passes the rest on, up to each ReadyForQuery.
func (p *pool) serve(client net.Conn) error {
	backend := pgproto3.NewBackend(client, client)
	if _, err := backend.ReceiveStartupMessage(); err != nil {
		return err
	}
	backend.Send(&pgproto3.AuthenticationOk{})
	for name, value := range p.server.ParameterStatuses {
		backend.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
	}
	backend.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if err := backend.Flush(); err != nil {
		return err
	}
	for {
		for ends := false; !ends; {
			msg, err := backend.Receive()
			if err != nil {
				return err
			}
			switch msg.(type) {
			case *pgproto3.Terminate:
				return nil
			case *pgproto3.Sync, *pgproto3.Query:
				ends = true
			}
			p.mu.Lock() // the message is the backend's own until the next Receive
			p.server.Frontend.Send(msg)
			p.mu.Unlock()
		}
		if err := p.answer(backend); err != nil {
			return err
		}
	}
}

func (p *pool) answer(backend *pgproto3.Backend) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.server.Frontend.Flush(); err != nil {
		return err
	}
	for {
		msg, err := p.server.Frontend.Receive()
		if err != nil {
			return err
		}
		backend.Send(msg)
		if err := backend.Flush(); err != nil {
			return err
		}
		if _, ends := msg.(*pgproto3.ReadyForQuery); ends {
			return nil
		}
	}
}
