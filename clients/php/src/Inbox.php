<?php
// SPDX-License-Identifier: MIT

namespace Skirnir;

use PDO;
use PDOException;
use Throwable;

/** Handling a message once: the record of it and the effects of a function are committed together, or neither is. */
final class Inbox
{
    /**
     * Begins a transaction on the connection, records the message, calls $function($connection, $message), and
     * commits. False: it was recorded before, and the function was not called. What the function throws is thrown
     * after a rollback; it must not end the transaction itself. Wait: another transaction has the record.
     */
    public static function handle(PDO $connection, Message $message, callable $function): bool
    {
        $database = new Database($connection);
        if ($database->isOpen())
            throw new SkirnirException('the connection is inside a transaction: end it first, as this one ends with '
                . 'what is handled');
        try {
            if (!self::record($database, $message)) {
                $database->end('ROLLBACK');
                return false;
            }
            Worker::checkRan($function($connection, $message));
            $database->commit();
            return true;
        } catch (Throwable $error) {
            $database->rollBack();
            throw $error;
        }
    }

    private static function record(Database $database, Message $message): bool
    {
        $table = $database->table($message->deduplication['table']);
        // For MySQL a second row is error 1062: IGNORE would hide others.
        $once = $database->kind === 'mysql' ? '' : ' ON CONFLICT (message_id) DO NOTHING';
        try {
            $database->begin();
            if ($message->id === null)
                return true; // nothing tells whether it came before
            return $database->run("INSERT INTO $table (message_id, message_name, processed_at) "
                . "VALUES (?, ?, {$database->now()})$once",
                [self::lob(Id::bytes($message->id)), $message->deduplication['name']]) > 0;
        } catch (PDOException $error) {
            if (Database::isDuplicate($error))
                return false;
            if (Database::isLocked($error))
                throw new Wait("the record of the message is locked: {$error->getMessage()}", 0, $error);
            throw $error;
        }
    }

    /** Bound as bytes, never as text. @return resource */
    private static function lob(string $bytes)
    {
        $stream = fopen('php://memory', 'r+');
        fwrite($stream, $bytes);
        rewind($stream);
        return $stream;
    }
}
