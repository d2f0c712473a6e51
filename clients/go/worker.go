// SPDX-License-Identifier: MIT

package skirnir

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// Reject is an error after which no further try would help: to the failed table
// at once.
type Reject string

// Wait is an error of something else that has locked what is needed: again soon,
// at no cost.
type Wait string

func (r Reject) Error() string { return string(r) }
func (w Wait) Error() string   { return string(w) }

// Delivery is a message that a worker is given.
type Delivery struct {
	Number        uint64            `json:"delivery"`
	ID            string            `json:"id"` // "": it has none
	Name          string            `json:"name"`
	Type          string            `json:"type"`
	Attempt       int               `json:"attempt"` // 1 the first time
	Source        string            `json:"source"`
	PartitionKey  *string           `json:"partition_key"`
	ContentType   string            `json:"content_type"`
	Traceparent   string            `json:"traceparent"`
	Tracestate    string            `json:"tracestate"`
	Headers       map[string]string `json:"headers"`
	BodyEncoding  string            `json:"body_encoding"`
	Body          string            `json:"body"`
	Deduplication struct {
		Table string `json:"table"`
		Name  string `json:"name"`
	} `json:"deduplication"`
}

// JSON parses the body into value. One that is not JSON is rejected.
func (d *Delivery) JSON(value any) error {
	if err := json.Unmarshal([]byte(d.Body), value); err != nil {
		return Reject(fmt.Sprintf("the body is not JSON: %v", err))
	}
	return nil
}

// Worker is the loop of a handler's process, as `command:` in skirnir.yaml names
// it: a line of JSON comes for each message, and one is answered.
type Worker struct {
	// nil; true: each message is recorded, as Handle does; "own": in another
	// database.
	Deduplicates any
	Idle         time.Duration // 0: a minute
}

type answer struct {
	Delivery uint64 `json:"delivery"`
	Verdict  string `json:"verdict"`
	Error    string `json:"error,omitempty"`
}

// Run calls work for each message until there are no more. The error that it
// returns is the answer: Reject, Wait, or any other for a retry. After that last
// kind, and after w.Idle without a message, Run returns and the process is to
// end: it is replaced when it is needed, with new connections. What is printed
// goes to standard error.
func (w Worker) Run(work func(*Delivery) error) error {
	out := json.NewEncoder(os.Stdout)
	os.Stdout = os.Stderr
	ready := map[string]any{"ready": true}
	if w.Deduplicates != nil {
		ready["deduplicates"] = w.Deduplicates
	}
	if w.Idle == 0 {
		w.Idle = time.Minute
	}
	if err := out.Encode(ready); err != nil {
		return err
	}
	lines := make(chan []byte)
	go readLines(lines)
	for {
		select {
		case line, isOpen := <-lines:
			if !isOpen {
				return nil
			}
			said, err := call(work, line)
			if err == nil {
				err = out.Encode(said)
			}
			if err != nil || said.Verdict == "retry" {
				return err
			}
		case <-time.After(w.Idle):
			return nil
		}
	}
}

func readLines(lines chan<- []byte) {
	defer close(lines)
	reader := bufio.NewReader(os.Stdin)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			return
		}
		lines <- line
	}
}

func call(work func(*Delivery) error, line []byte) (answer, error) {
	var delivery Delivery
	if err := json.Unmarshal(line, &delivery); err != nil {
		return answer{}, err
	}
	if delivery.BodyEncoding == "base64" {
		body, err := base64.StdEncoding.DecodeString(delivery.Body)
		if err != nil {
			return answer{}, err
		}
		delivery.Body = string(body)
	}
	err := work(&delivery)
	said := answer{Delivery: delivery.Number, Verdict: "accept"}
	if err == nil {
		return said, nil
	}
	var reject Reject
	var wait Wait
	switch {
	case errors.As(err, &reject):
		said.Verdict = "reject"
	case errors.As(err, &wait):
		said.Verdict = "wait"
	default:
		said.Verdict = "retry"
	}
	said.Error = fmt.Sprintf("%.1000s", err)
	return said, nil
}
