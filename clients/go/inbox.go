// SPDX-License-Identifier: MIT

package skirnir

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
)

// Handle begins a transaction, records the message, calls work, and commits: the
// record and the effects of work are committed together, or neither is. A
// message that was recorded before is handled, and work is not called. What it
// returns is returned after a rollback; it must not end the transaction itself.
// Wait: another transaction has the record.
func Handle(ctx context.Context, db *sql.DB, database *Database, delivery *Delivery,
	work func(context.Context, *sql.Tx, *Delivery) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	isHeld, err := database.hold(ctx, conn)
	if err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		discard(conn)
		return err
	}
	isEnded := false
	defer func() {
		// One that something else ends may be about to end.
		if !isEnded && tx.Rollback() != nil || isHeld && release(conn) != nil {
			discard(conn)
		}
	}()
	isNew, err := record(ctx, tx, database, delivery)
	if err != nil || !isNew {
		return err
	}
	if err := work(ctx, tx, delivery); err != nil {
		return err
	}
	// Fails if the transaction in which the record stands was ended.
	if _, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT skirnir"); err != nil {
		return err
	}
	err = tx.Commit()
	isEnded = err == nil
	return err
}

// After a deadlock on MySQL, which ends the transaction, nothing is to commit by
// itself, even if the caller goes on. Whether release is needed after the end.
func (d *Database) hold(ctx context.Context, conn *sql.Conn) (isHeld bool, err error) {
	if d != MySQL {
		return false, nil
	}
	err = conn.QueryRowContext(ctx, "SELECT @@autocommit").Scan(&isHeld)
	if err == nil && isHeld {
		if _, err = conn.ExecContext(ctx, "SET autocommit = 0"); err != nil {
			discard(conn)
		}
	}
	return isHeld, err
}

func release(conn *sql.Conn) error {
	_, err := conn.ExecContext(context.Background(), "SET autocommit = 1")
	return err
}

// It does not go back to the pool.
func discard(conn *sql.Conn) {
	conn.Raw(func(any) error { return driver.ErrBadConn })
}

func record(ctx context.Context, tx *sql.Tx, d *Database, delivery *Delivery) (bool, error) {
	table, err := d.table(delivery.Deduplication.Table)
	if err != nil {
		return false, err
	}
	id, err := idBytes(delivery.ID)
	if err != nil {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, "SAVEPOINT skirnir"); err != nil {
		return false, err
	}
	if delivery.ID == "" {
		return true, nil // nothing tells whether it came before
	}
	result, err := tx.ExecContext(ctx, "INSERT INTO "+table+
		" (message_id, message_name, processed_at) VALUES ("+d.mark(1)+", "+d.mark(2)+", "+
		d.now+")"+d.once, id, delivery.Deduplication.Name)
	switch {
	case err == nil:
		count, err := result.RowsAffected()
		return count > 0, err
	case d.isDuplicate(err):
		return false, nil
	case d.isLocked(err):
		return false, Wait(fmt.Sprintf("the record of the message is locked: %v", err))
	}
	return false, err
}
