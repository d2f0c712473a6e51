// SPDX-License-Identifier: MIT

package skirnir

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Namespace is that of the stamps that Symfony reads.
const Namespace = `Freyr\MessageBroker\Inbox`

const (
	longestHeaders = 1024 * 1024 // bytes
	mostHeaders    = 993
)

// Outbox is a table, and a queue in it. Made by NewOutbox.
type Outbox struct {
	Database *Database
	Table    string // "messenger_outbox", or "kafka_outbox"
	Queue    string // "outbox"
	Ordered  bool   // the table has partition keys
	Kafka    bool   // the table is that of `skirnir kafka-relay`
	Topic    string // of Kafka; "": the name of each message
	// Of the stamp header that carries the id; "": none.
	StampNamespace string

	isChecked atomic.Bool
}

// NewOutbox is the queue `outbox` of the table `messenger_outbox`. Its fields
// may be changed before it is used.
func NewOutbox(database *Database) *Outbox {
	return &Outbox{Database: database, Queue: "outbox", StampNamespace: Namespace}
}

// Header is a further header of a message.
type Header struct{ Name, Value string }

// Message is what is published.
type Message struct {
	Name string // such as order.placed
	// Text and bytes are sent as they are, anything else as JSON.
	Body        any
	Key         *string // the partition key; see Key()
	Headers     []Header
	ID          string        // "": one is made
	Delay       time.Duration // at least, until it is sent
	ContentType string        // "": application/json
}

// Key is for the field of that name.
func Key(key string) *string { return &key }

// Publish adds a message in the caller's transaction, and returns its id. The
// relay sees it if and only if that commits. The row is, to the byte, the one
// that skr_publish() of the C library writes.
func (o *Outbox) Publish(ctx context.Context, tx *sql.Tx, message Message) (string, error) {
	name := o.Table
	if name == "" {
		name = map[bool]string{false: "messenger_outbox", true: "kafka_outbox"}[o.Kafka]
	}
	table, err := o.Database.table(name)
	if err != nil {
		return "", err
	}
	body, err := readBody(message.Body)
	if err != nil {
		return "", err
	}
	if message.ContentType == "" {
		message.ContentType = "application/json"
	}
	if message.ID != "" {
		message.ID, err = readID(message.ID)
	}
	if err == nil && (message.ID == "" || message.ID == unset) {
		message.ID, err = NewID()
	}
	if err == nil {
		err = o.check(message, body)
	}
	if err != nil {
		return "", err
	}
	headers := o.headers(message)
	if len(headers) > longestHeaders {
		return "", fmt.Errorf("message %s: the headers have over %d bytes", message.Name,
			longestHeaders)
	}
	if !o.isChecked.Load() {
		if err := o.Database.checkEngine(ctx, tx, name); err != nil {
			return "", err
		}
		o.isChecked.Store(true)
	}
	statement, values := o.insert(table, message, body, headers)
	_, err = tx.ExecContext(ctx, statement, values...)
	return message.ID, err
}

// The statement and its values.
func (o *Outbox) insert(table string, message Message, body, headers string) (string, []any) {
	d := o.Database
	columns := []string{"body", "headers", "queue_name"}
	values := []any{body, headers, o.Queue}
	clock := []string{d.now, d.now}
	if message.Delay > 0 {
		clock[1] = fmt.Sprintf(d.later, message.Delay.Milliseconds())
	}
	switch {
	case o.Kafka:
		columns = []string{"topic", "payload_json", "payload_headers", "key"}
		values = []any{o.Topic, body, headers, message.ID}
		if o.Topic == "" {
			values[0] = message.Name
		}
		if message.Key != nil && *message.Key != "" {
			values[3] = *message.Key
		}
		clock = nil
	case o.Ordered:
		columns = append(columns, "partition_key")
		values = append(values, *message.Key)
	}
	marks := []string{}
	for i := range columns {
		columns[i] = d.name(columns[i])
		marks = append(marks, d.mark(i+1))
	}
	if clock != nil {
		columns = append(columns, "created_at", "available_at")
		marks = append(marks, clock...)
	}
	return "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES (" +
		strings.Join(marks, ", ") + ")", values
}

func (o *Outbox) headers(message Message) string {
	all := []Header{{"type", message.Name}}
	stamp := "X-Message-Stamp-" + o.StampNamespace + `\`
	add := func(name, member, value string) {
		if o.StampNamespace != "" {
			all = append(all, Header{stamp + name, "[" + toJSON([]Header{{member, value}}) + "]"})
		}
	}
	add("MessageIdStamp", "messageId", message.ID)
	all = append(all, Header{"X-Message-Id", message.ID})
	if message.Key != nil {
		add("PartitionKeyStamp", "partitionKey", *message.Key)
	}
	all = append(all, message.Headers...)
	return toJSON(append(all, Header{"Content-Type", message.ContentType}))
}

// In the order in which they are given, and with no escape that is not needed.
func toJSON(members []Header) string {
	var text strings.Builder
	for i, member := range members {
		text.WriteString(map[bool]string{true: "{", false: ","}[i == 0])
		quote(&text, member.Name)
		text.WriteByte(':')
		quote(&text, member.Value)
	}
	text.WriteByte('}')
	return text.String()
}

func quote(text *strings.Builder, value string) {
	const plain, letters = "\"\\\b\f\n\r\t", `"\bfnrt`
	text.WriteByte('"')
	for i := 0; i < len(value); i++ {
		switch at := strings.IndexByte(plain, value[i]); {
		case at >= 0:
			text.WriteByte('\\')
			text.WriteByte(letters[at])
		case value[i] < ' ':
			fmt.Fprintf(text, `\u%04x`, value[i])
		default:
			text.WriteByte(value[i])
		}
	}
	text.WriteByte('"')
}

func readBody(body any) (string, error) {
	switch body := body.(type) {
	case string:
		return body, nil
	case []byte:
		return string(body), nil
	case json.RawMessage:
		return string(body), nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(body)
	return strings.TrimSuffix(text.String(), "\n"), err
}

var (
	nameForm  = regexp.MustCompile(`^[a-z][a-z0-9]*(\.[a-z][a-z0-9]*)+$`)
	topicForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
	stampForm = regexp.MustCompile(
		`(?s)^X-Message-Stamp-.*(MessageIdStamp|PartitionKeyStamp)$`)
	parentForm = regexp.MustCompile(
		`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}($|-)`)
	stateForm  = regexp.MustCompile(`^[\t -~]*$`)
	memberForm = regexp.MustCompile(`^[ \t]*($|[^= \t][^=]*=)`)
)

func isText(text string) bool {
	return utf8.ValidString(text) && !strings.Contains(text, "\x00")
}

func hasControl(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0
}

func (o *Outbox) check(message Message, body string) error {
	refuse := func(format string, values ...any) error {
		return fmt.Errorf("message "+message.Name+format, values...)
	}
	switch {
	case o.Queue == "" || len(o.Queue) > 190 || !isText(o.Queue):
		return fmt.Errorf("queue name '%s': 1 to 190 bytes of UTF-8 text are needed", o.Queue)
	case o.Topic != "" && (!o.Kafka || !topicForm.MatchString(o.Topic)):
		return fmt.Errorf("topic '%s': 1 to 249 letters, digits, dots, underscores and hyphens "+
			"are needed, in a kafka_outbox only", o.Topic)
	case len(message.Name) > 255 || !nameForm.MatchString(message.Name):
		return fmt.Errorf("message name '%s': words of lower case letters and digits, joined by "+
			"dots, are needed; order.placed would do", message.Name)
	case !isText(body):
		return refuse(": the body is not UTF-8 text, or holds a zero byte")
	case message.Key != nil && (len(*message.Key) > 255 || !isText(*message.Key)):
		return refuse(": the partition key is over 255 bytes, or not UTF-8 text")
	case !isText(message.ContentType) || hasControl(message.ContentType):
		return refuse(": the content type is not UTF-8 text, or holds a control character")
	case message.Delay < 0:
		return refuse(": the delay is negative")
	case o.Kafka && message.Delay > 0:
		return refuse(" has a due time, which kafka_outbox does not know")
	case o.Kafka && !json.Valid([]byte(body)):
		return refuse(": its body must be JSON")
	case !o.Kafka && o.Ordered && message.Key == nil:
		return refuse(" has no partition key, which this ordered outbox needs")
	case !o.Kafka && !o.Ordered && message.Key != nil && *message.Key != "":
		return refuse(" has the partition key '%s', but this outbox keeps no order", *message.Key)
	}
	return checkHeaders(message.Headers, refuse)
}

func checkHeaders(headers []Header, refuse func(string, ...any) error) error {
	given := map[string]string{}
	if len(headers) > mostHeaders {
		return refuse(" has more than %d headers", mostHeaders)
	}
	for _, header := range headers {
		_, isTwice := given[header.Name]
		given[header.Name] = header.Value
		switch {
		case header.Name == "":
			return refuse(": header '' has no name or no value")
		case hasControl(header.Name):
			return refuse(": the name of header %q holds a control character", header.Name)
		case header.Name == "type" || header.Name == "Content-Type" ||
			header.Name == "X-Message-Id" || stampForm.MatchString(header.Name):
			return refuse(": header '%s' is written by the library", header.Name)
		case isTwice:
			return refuse(": header '%s' is given twice", header.Name)
		case !isText(header.Name) || !isText(header.Value):
			return refuse(": header '%s' is not UTF-8", header.Name)
		}
	}
	parent, hasParent := given["traceparent"]
	state, hasState := given["tracestate"]
	switch {
	case hasParent && !isParent(parent):
		return refuse(": traceparent is '%s'", parent)
	case hasState && !hasParent:
		return refuse(": tracestate means nothing without a traceparent")
	case hasState && !isState(state):
		return refuse(": tracestate is '%s'", state)
	}
	return nil
}

func isParent(text string) bool {
	parts := parentForm.FindStringSubmatch(text)
	return parts != nil && parts[1] != "ff" && strings.Trim(parts[2], "0") != "" &&
		strings.Trim(parts[3], "0") != "" && (parts[1] != "00" || len(text) == 55)
}

func isState(text string) bool {
	members := strings.Split(text, ",")
	for _, member := range members {
		if !memberForm.MatchString(member) {
			return false
		}
	}
	return len(members) <= 32 && stateForm.MatchString(text)
}
