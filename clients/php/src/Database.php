<?php
// SPDX-License-Identifier: MIT

namespace Skirnir;

use PDO;
use PDOException;

/** What differs between the databases, for a connection that is the caller's. */
final class Database
{
    private const NOW = [
        'sqlite' => "datetime('now')",
        'pgsql' => "date_trunc('second', statement_timestamp() AT TIME ZONE 'UTC')",
        'mysql' => 'UTC_TIMESTAMP()',
    ];
    // In so many milliseconds, and never before.
    private const LATER = [
        'sqlite' => "datetime('now', '+' || ((%d + 999) / 1000.0) || ' seconds')",
        'pgsql' => "date_trunc('second', (statement_timestamp() + make_interval("
            . "secs => (%d + 999) / 1000.0)) AT TIME ZONE 'UTC')",
        'mysql' => '(UTC_TIMESTAMP() + INTERVAL ((MICROSECOND(UTC_TIMESTAMP(3)) '
            . 'DIV 1000 + %d + 999) DIV 1000) SECOND)',
    ];
    private const BEGIN = [
        'sqlite' => 'BEGIN IMMEDIATE',
        'pgsql' => 'BEGIN',
        'mysql' => 'START TRANSACTION',
    ];

    public readonly string $kind;
    private bool $isHeld = false;

    public function __construct(public readonly PDO $connection)
    {
        $this->kind = $connection->getAttribute(PDO::ATTR_DRIVER_NAME);
        if (!isset(self::NOW[$this->kind]))
            throw new SkirnirException("the driver {$this->kind} is none of sqlite, pgsql and mysql");
    }

    public function now(): string
    {
        return self::NOW[$this->kind];
    }

    public function later(int $milliseconds): string
    {
        return sprintf(self::LATER[$this->kind], $milliseconds);
    }

    public function quote(string $name): string
    {
        return $this->kind === 'mysql' ? "`$name`" : "\"$name\"";
    }

    /** Quoted, in the case that the server would give it without quotes. */
    public function table(string $name): string
    {
        if (preg_match('/\A[A-Za-z_][A-Za-z0-9_]{0,62}\z/', $name) !== 1)
            throw new SkirnirException("table name '$name': letters, digits and underscores are needed, "
                . 'at most 63, not beginning with a digit');
        return $this->quote($this->kind === 'pgsql' ? strtolower($name) : $name);
    }

    /** The number of rows that were changed; a PDOException for an error, in whatever mode the connection is. */
    public function run(string $sql, array $values = []): int
    {
        $mode = $this->connection->getAttribute(PDO::ATTR_ERRMODE);
        $this->connection->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);
        try {
            if ($values === [])
                return (int) $this->connection->exec($sql);
            $statement = $this->connection->prepare($sql);
            foreach ($values as $i => $value)
                is_resource($value) ? $statement->bindValue($i + 1, $value, PDO::PARAM_LOB)
                    : $statement->bindValue($i + 1, $value);
            $statement->execute();
            return $statement->rowCount();
        } finally {
            $this->connection->setAttribute(PDO::ATTR_ERRMODE, $mode);
        }
    }

    /**
     * Whether a transaction is open, also one that was begun or ended by SQL. PDO knows of that where the server tells
     * it; SQLite refuses to begin a second one, which changes nothing.
     */
    public function isOpen(): bool
    {
        if ($this->kind !== 'sqlite')
            return $this->connection->inTransaction();
        try {
            $this->run('BEGIN');
        } catch (PDOException $error) {
            return str_contains($error->getMessage(), 'within a transaction');
        }
        $this->run('ROLLBACK');
        return false;
    }

    public function mayPublish(): bool
    {
        return $this->isOpen()
            || $this->kind === 'mysql' && !$this->connection->getAttribute(PDO::ATTR_AUTOCOMMIT);
    }

    /**
     * After a deadlock on MySQL, which ends the transaction, nothing is to commit by itself, even if the caller goes
     * on.
     */
    public function begin(): void
    {
        if ($this->kind === 'mysql' && $this->connection->query('SELECT @@autocommit')->fetchColumn()) {
            $this->run('SET autocommit = 0');
            $this->isHeld = true;
        }
        $this->run(self::BEGIN[$this->kind]);
        $this->run('SAVEPOINT skirnir');
    }

    /** Fails if the transaction that was begun has been ended. */
    public function commit(): void
    {
        $this->run('RELEASE SAVEPOINT skirnir');
        $this->end('COMMIT');
    }

    public function end(string $how): void
    {
        $this->run($how);
        if ($this->isHeld)
            $this->run('SET autocommit = 1');
        $this->isHeld = false;
    }

    /** The error that led to it is the one to be told. */
    public function rollBack(): void
    {
        try {
            $this->end('ROLLBACK');
        } catch (PDOException) {
        }
    }

    /** A table that keeps what is rolled back would break the promise. */
    public function checkEngine(string $table): void
    {
        if ($this->kind !== 'mysql')
            return;
        $statement = $this->connection->prepare(
            'SELECT t.ENGINE FROM information_schema.TABLES AS t JOIN information_schema.ENGINES AS e '
            . 'ON e.ENGINE = t.ENGINE WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = ? '
            . "AND e.TRANSACTIONS <> 'YES'");
        $statement->execute([$table]);
        $engine = $statement->fetchColumn();
        $statement->closeCursor();
        if ($engine !== false)
            throw new SkirnirException("table $table has the engine $engine, which takes no part in transactions");
    }

    public static function isDuplicate(PDOException $error): bool
    {
        return ($error->errorInfo[1] ?? 0) === 1062;
    }

    public static function isLocked(PDOException $error): bool
    {
        return in_array($error->errorInfo[0] ?? '', ['55P03', '40P01', '40001'], true)
            || in_array($error->errorInfo[1] ?? 0, [1205, 1213], true)
            || str_contains($error->getMessage(), 'database is locked');
    }
}
