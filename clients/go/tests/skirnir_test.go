// SPDX-License-Identifier: MIT

// Run by tests/integration/test_clients.py, which makes the databases that
// SKR_CLIENT_SQLITE, _POSTGRESQL and _MARIADB name, with their tables. A module
// of its own: the client needs no driver.
package tests

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"reflect"
	"sort"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/lib/pq"
	_ "github.com/mattn/go-sqlite3"
	"skirnir"
)

var ctx = context.Background()

var databases = map[string]*skirnir.Database{"sqlite": skirnir.SQLite,
	"postgresql": skirnir.PostgreSQL, "mariadb": skirnir.MySQL}

var seconds = map[string]string{
	"sqlite":     "strftime('%s', available_at) - strftime('%s', created_at)",
	"postgresql": "CAST(extract(epoch FROM available_at - created_at) AS INTEGER)",
	"mariadb":    "TIMESTAMPDIFF(SECOND, created_at, available_at)",
}

// The test is a worker too, where its environment says so.
func TestMain(m *testing.M) {
	if how := os.Getenv("SKR_WORKER"); how != "" {
		end(work(how))
	}
	if kind := os.Getenv("SKR_SHOP"); kind != "" {
		end(shop(kind))
	}
	os.Exit(m.Run())
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Does what the body of a message says; see clients/vectors/README.md.
func work(how string) error {
	var worker skirnir.Worker
	if err := json.Unmarshal([]byte(how), &worker.Deduplicates); err != nil {
		return err
	}
	return worker.Run(func(delivery *skirnir.Delivery) error {
		var wanted struct{ Do, Why string }
		if err := delivery.JSON(&wanted); err != nil {
			return err
		}
		switch wanted.Do {
		case "reject":
			return skirnir.Reject(wanted.Why)
		case "wait":
			return skirnir.Wait(wanted.Why)
		case "fail":
			return errors.New(wanted.Why)
		case "print":
			fmt.Println("nothing that a consumer wants to know")
		}
		return nil
	})
}

// An effect for each order, and a byte in the file `progress` for each call.
func shop(kind string) error {
	db := connect(kind, 10)
	progress, err := os.OpenFile("progress", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	place := func(ctx context.Context, tx *sql.Tx, delivery *skirnir.Delivery) error {
		progress.WriteString(".")
		var order struct{ OrderID string }
		if err := delivery.JSON(&order); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (order_id) VALUES ('"+
			order.OrderID+"')")
		return err
	}
	return skirnir.Worker{Deduplicates: true}.Run(func(delivery *skirnir.Delivery) error {
		return skirnir.Handle(ctx, db, databases[kind], delivery, place)
	})
}

func connect(kind string, patience int) *sql.DB {
	address, err := url.Parse(os.Getenv("SKR_CLIENT_" + strings.ToUpper(kind)))
	if err != nil {
		panic(err)
	}
	driver, source := "sqlite3", fmt.Sprintf("file:%s?_busy_timeout=%d", address.Path, patience*1000)
	switch kind {
	case "postgresql":
		driver = "postgres"
		source = fmt.Sprintf("postgres://%s@%s%s?sslmode=disable&lock_timeout=%d",
			address.User.Username(), address.Host, address.Path, patience*1000+50)
	case "mariadb":
		driver = "mysql"
		source = fmt.Sprintf("%s@tcp(%s)%s?innodb_lock_wait_timeout=%d",
			address.User.Username(), address.Host, address.Path, patience)
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		panic(err)
	}
	return db
}

// Headers in their order, which a map does not keep.
type headers []skirnir.Header

func (h *headers) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	var texts []string
	for {
		token, err := decoder.Token()
		if err != nil {
			break
		}
		if word, isText := token.(string); isText {
			texts = append(texts, word)
		}
	}
	for i := 0; i+1 < len(texts); i += 2 {
		*h = append(*h, skirnir.Header{Name: texts[i], Value: texts[i+1]})
	}
	return nil
}

type vector struct {
	About  string
	Outbox struct {
		Table, Topic   string
		Queue          *string
		Ordered, Kafka bool
		StampNamespace *string `json:"stamp_namespace"`
	}
	Message struct {
		Name, ID    string
		Body        *string
		BodyHex     string `json:"body_hex"`
		Key         *string
		Headers     headers
		ContentType *string `json:"content_type"`
	}
	Row   map[string]string
	Error string
}

func readVectors(t *testing.T, name string, into any) {
	text, err := os.ReadFile("../../vectors/" + name)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func run(t *testing.T, db interface {
	Exec(string, ...any) (sql.Result, error)
}, statement string) {
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}

func ask(t *testing.T, db interface {
	QueryRow(string, ...any) *sql.Row
}, query string, into any) {
	if err := db.QueryRow(query).Scan(into); err != nil {
		t.Fatal(query, err)
	}
}

func publishVector(t *testing.T, kind string, tx *sql.Tx, v vector) {
	outbox := skirnir.NewOutbox(databases[kind])
	outbox.Table, outbox.Topic = v.Outbox.Table, v.Outbox.Topic
	outbox.Ordered, outbox.Kafka = v.Outbox.Ordered, v.Outbox.Kafka
	if v.Outbox.StampNamespace != nil {
		outbox.StampNamespace = *v.Outbox.StampNamespace
	}
	if v.Outbox.Queue != nil {
		outbox.Queue = *v.Outbox.Queue
	}
	message := skirnir.Message{Name: v.Message.Name, ID: v.Message.ID, Key: v.Message.Key,
		Headers: v.Message.Headers}
	if message.Body, _ = hex.DecodeString(v.Message.BodyHex); v.Message.Body != nil {
		message.Body = *v.Message.Body
	}
	if v.Message.ContentType != nil {
		if message.ContentType = *v.Message.ContentType; message.ContentType == "" {
			return // here that is to leave it out
		}
	}
	_, err := outbox.Publish(ctx, tx, message)
	if v.Error != "" {
		if err == nil || !strings.Contains(err.Error(), v.Error) {
			t.Fatalf("wanted '%s', found %v", v.Error, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	table := map[bool]string{false: "messenger_outbox", true: "kafka_outbox"}[v.Outbox.Kafka]
	if v.Outbox.Table != "" {
		table = v.Outbox.Table
	}
	mark := map[bool]string{false: `"`, true: "`"}[kind == "mariadb"]
	for column, wanted := range v.Row {
		var found string
		ask(t, tx, "SELECT "+mark+column+mark+" FROM "+table, &found)
		if found != wanted {
			t.Errorf("%s: wanted %q, found %q", column, wanted, found)
		}
	}
}

func newDelivery() *skirnir.Delivery {
	delivery := &skirnir.Delivery{ID: "01890a5d-ac96-774b-bcce-b302099a8057", Body: "{}"}
	delivery.Deduplication.Table = "message_broker_deduplication"
	delivery.Deduplication.Name = `App\Order`
	return delivery
}

func effect(ctx context.Context, tx *sql.Tx, _ *skirnir.Delivery) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effects (order_id) VALUES ('1')")
	return err
}

func count(t *testing.T, db *sql.DB, table string) (count int) {
	ask(t, db, "SELECT COUNT(*) FROM "+table, &count)
	return count
}

func TestDatabases(t *testing.T) {
	var vectors []vector
	readVectors(t, "publish.json", &vectors)
	for kind := range databases {
		db := connect(kind, 0)
		defer db.Close()
		test := func(name string, body func(t *testing.T)) {
			t.Run(kind+"/"+name, func(t *testing.T) {
				for _, table := range []string{"messenger_outbox", "Other_Outbox",
					"kafka_outbox", "message_broker_deduplication", "effects"} {
					run(t, db, "DELETE FROM "+table)
				}
				body(t)
			})
		}
		for _, v := range vectors {
			v := v
			test(v.About, func(t *testing.T) { publishVector(t, kind, begin(t, db), v) })
		}
		test("publish", func(t *testing.T) { testPublish(t, kind, db) })
		test("handle", func(t *testing.T) { testHandle(t, kind, db) })
		test("no id", func(t *testing.T) { testNoID(t, kind, db) })
		test("fail", func(t *testing.T) { testFailure(t, kind, db) })
		if kind == "mariadb" {
			test("deadlock", func(t *testing.T) { testDeadlock(t, kind, db) })
		}
		test("wait", func(t *testing.T) { testWait(t, kind, db) })
	}
}

func testPublish(t *testing.T, kind string, db *sql.DB) {
	outbox := skirnir.NewOutbox(databases[kind])
	message := skirnir.Message{Name: "order.placed", Body: map[string]string{"a": "<ü/>"},
		ID:    "00000000-0000-0000-0000-000000000000", // none
		Delay: 60500 * time.Millisecond}
	publish := func() (string, *sql.Tx) {
		tx := begin(t, db)
		id, err := outbox.Publish(ctx, tx, message)
		if err != nil {
			t.Fatal(err)
		}
		return id, tx
	}
	id, tx := publish()
	tx.Rollback()
	if count(t, db, "messenger_outbox") != 0 {
		t.Fatal("what was rolled back is there")
	}
	again, tx := publish()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if id[14] != '7' || id >= again {
		t.Fatal(id, again)
	}
	var body string
	var delay int
	ask(t, db, "SELECT body FROM messenger_outbox", &body)
	ask(t, db, "SELECT "+seconds[kind]+" FROM messenger_outbox", &delay)
	if body != `{"a":"<ü/>"}` || delay < 61 || delay > 62 {
		t.Fatal(body, delay)
	}
}

func testHandle(t *testing.T, kind string, db *sql.DB) {
	for i := 0; i < 2; i++ {
		if err := skirnir.Handle(ctx, db, databases[kind], newDelivery(), effect); err != nil {
			t.Fatal(err)
		}
	}
	if count(t, db, "effects") != 1 {
		t.Fatal("an effect twice")
	}
	var id []byte
	var name string
	ask(t, db, "SELECT message_id FROM message_broker_deduplication", &id)
	ask(t, db, "SELECT message_name FROM message_broker_deduplication", &name)
	if hex.EncodeToString(id) != "01890a5dac96774bbcceb302099a8057" || name != `App\Order` {
		t.Fatal(id, name)
	}
}

func testNoID(t *testing.T, kind string, db *sql.DB) {
	for i := 0; i < 2; i++ {
		delivery := newDelivery()
		delivery.ID = ""
		if err := skirnir.Handle(ctx, db, databases[kind], delivery, effect); err != nil {
			t.Fatal(err)
		}
	}
	if count(t, db, "effects") != 2 || count(t, db, "message_broker_deduplication") != 0 {
		t.Fatal("no effect, or a record without an id")
	}
}

func testFailure(t *testing.T, kind string, db *sql.DB) {
	no := errors.New("no")
	err := skirnir.Handle(ctx, db, databases[kind], newDelivery(),
		func(ctx context.Context, tx *sql.Tx, delivery *skirnir.Delivery) error {
			if err := effect(ctx, tx, delivery); err != nil {
				t.Fatal(err)
			}
			return no
		})
	if !errors.Is(err, no) || count(t, db, "effects") != 0 ||
		count(t, db, "message_broker_deduplication") != 0 {
		t.Fatal(err)
	}
	if skirnir.Handle(ctx, db, databases[kind], newDelivery(),
		func(_ context.Context, tx *sql.Tx, _ *skirnir.Delivery) error {
			return tx.Commit()
		}) == nil {
		t.Fatal("a transaction that was ended is none")
	}
}

func testDeadlock(t *testing.T, kind string, db *sql.DB) {
	db.SetMaxOpenConns(1)
	defer db.SetMaxOpenConns(0)
	if skirnir.Handle(ctx, db, databases[kind], newDelivery(),
		func(ctx context.Context, tx *sql.Tx, delivery *skirnir.Delivery) error {
			if _, err := tx.ExecContext(ctx, "ROLLBACK"); err != nil { // as it does
				t.Fatal(err)
			}
			return effect(ctx, tx, delivery)
		}) == nil || count(t, db, "effects") != 0 {
		t.Fatal("what followed a deadlock was committed")
	}
	testHandle(t, kind, db)
	if count(t, db, "effects WHERE @@autocommit = 1") != 1 {
		t.Fatal("autocommit is off")
	}
}

func testWait(t *testing.T, kind string, db *sql.DB) {
	err := skirnir.Handle(ctx, db, databases[kind], newDelivery(),
		func(context.Context, *sql.Tx, *skirnir.Delivery) error {
			other := connect(kind, 0)
			defer other.Close()
			var wait skirnir.Wait
			err := skirnir.Handle(ctx, other, databases[kind], newDelivery(), effect)
			if !errors.As(err, &wait) {
				t.Errorf("wanted a wait, found %v", err)
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWorker(t *testing.T) {
	var vectors []struct {
		About    string
		Ready    map[string]any
		Dialogue []struct {
			In  json.RawMessage
			Out map[string]any
		}
	}
	readVectors(t, "worker.json", &vectors)
	for _, v := range vectors {
		how, _ := json.Marshal(v.Ready["deduplicates"])
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "SKR_WORKER="+string(how))
		in, _ := child.StdinPipe()
		out, _ := child.StdoutPipe()
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		expect := func(wanted map[string]any) {
			line, err := lines.ReadBytes('\n')
			var found map[string]any
			if err == nil {
				err = json.Unmarshal(line, &found)
			}
			if wanted["error"] == nil {
				delete(found, "error")
			}
			if err != nil || !reflect.DeepEqual(found, wanted) {
				t.Errorf("%s: wanted %v, found %s %v", v.About, wanted, line, err)
			}
		}
		expect(v.Ready)
		for _, exchange := range v.Dialogue {
			if string(exchange.In) == "null" {
				break
			}
			fmt.Fprintln(in, string(exchange.In))
			expect(exchange.Out)
		}
		if string(v.Dialogue[len(v.Dialogue)-1].In) != "null" {
			in.Close()
		}
		if rest, _ := lines.ReadString('\n'); rest != "" {
			t.Errorf("%s: %s", v.About, rest)
		}
		if err := child.Wait(); err != nil {
			t.Errorf("%s: %v", v.About, err)
		}
	}
}

func TestIDsAscend(t *testing.T) {
	ids := make([]string, 5000)
	for i := range ids {
		ids[i], _ = skirnir.NewID()
	}
	if !sort.StringsAreSorted(ids) || ids[0] == ids[1] {
		t.Fatal("ids do not ascend")
	}
}
