// SPDX-License-Identifier: MIT

// Package skirnir publishes messages in your transaction, and handles each one
// once. It needs database/sql alone, with any driver.
package skirnir

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Database is a kind of database: database/sql does not tell which it is.
type Database struct {
	isNumbered, isFolded bool
	quote                string
	now, later           string
	once                 string
}

const utc = "date_trunc('second', statement_timestamp() AT TIME ZONE 'UTC')"

// The kinds that there are. MySQL is MariaDB too.
var (
	PostgreSQL = &Database{
		isNumbered: true, isFolded: true, quote: `"`, now: utc,
		later: "date_trunc('second', (statement_timestamp() + make_interval(" +
			"secs => (%d + 999) / 1000.0)) AT TIME ZONE 'UTC')",
		once: " ON CONFLICT (message_id) DO NOTHING",
	}
	MySQL = &Database{
		quote: "`", now: "UTC_TIMESTAMP()",
		later: "(UTC_TIMESTAMP() + INTERVAL ((MICROSECOND(UTC_TIMESTAMP(3)) DIV " +
			"1000 + %d + 999) DIV 1000) SECOND)",
		once: "", // a second row is error 1062; IGNORE would hide others
	}
	SQLite = &Database{
		quote: `"`, now: "datetime('now')",
		later: "datetime('now', '+' || ((%d + 999) / 1000.0) || ' seconds')",
		once:  " ON CONFLICT (message_id) DO NOTHING",
	}
)

func (d *Database) mark(number int) string {
	if d.isNumbered {
		return fmt.Sprintf("$%d", number)
	}
	return "?"
}

func (d *Database) name(text string) string {
	return d.quote + text + d.quote
}

var tableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// Quoted, in the case that the server would give it without quotes.
func (d *Database) table(name string) (string, error) {
	if !tableForm.MatchString(name) {
		return "", fmt.Errorf("table name '%s': letters, digits and underscores are needed, "+
			"at most 63, not beginning with a digit", name)
	}
	if d.isFolded {
		name = strings.ToLower(name)
	}
	return d.name(name), nil
}

// A table that keeps what is rolled back would break the promise.
func (d *Database) checkEngine(ctx context.Context, tx *sql.Tx, table string) error {
	if d != MySQL {
		return nil
	}
	var engine string
	err := tx.QueryRowContext(ctx, "SELECT t.ENGINE FROM information_schema.TABLES AS t JOIN "+
		"information_schema.ENGINES AS e ON e.ENGINE = t.ENGINE WHERE t.TABLE_SCHEMA = "+
		"DATABASE() AND t.TABLE_NAME = ? AND e.TRANSACTIONS <> 'YES'", table).Scan(&engine)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("table %s has the engine %s, which takes no part in transactions",
		table, engine)
}

// Drivers have types of their own for errors; what they have in common is the
// state of SQL, or the text.
func (d *Database) isDuplicate(err error) bool {
	return d == MySQL && strings.HasPrefix(err.Error(), "Error 1062")
}

func (d *Database) isLocked(err error) bool {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		code := state.SQLState()
		return code == "55P03" || code == "40P01" || code == "40001"
	}
	text := err.Error()
	return d == MySQL && (strings.HasPrefix(text, "Error 1205") ||
		strings.HasPrefix(text, "Error 1213")) ||
		d == SQLite && strings.Contains(text, "database is locked")
}
