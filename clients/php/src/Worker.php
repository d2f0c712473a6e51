<?php
// SPDX-License-Identifier: MIT

namespace Skirnir;

use Generator;
use Throwable;

/**
 * The loop of a handler's process, as `command:` in skirnir.yaml names it: a line of JSON comes for each message, and
 * one is answered.
 */
final class Worker
{
    /**
     * Calls $function($message) for each message until there are no more. What it throws is the answer: Reject, Wait,
     * or anything else for a retry. After that last kind, and after $idle seconds without a message, this returns and
     * the process is to end: it is replaced when it is needed, with a new connection.
     *
     * $deduplicates: the function records each message, as Inbox::handle() does; 'own': in another database. What is
     * printed goes to standard error.
     */
    public static function run(callable $function, bool|string $deduplicates = false, int $idle = 60): void
    {
        ini_set('display_errors', 'stderr');
        ob_start(function (string $printed): string {
            fwrite(STDERR, $printed);
            return '';
        }, 1);
        self::say(['ready' => true] + ($deduplicates ? ['deduplicates' => $deduplicates] : []));
        for (;;) {
            [$read, $none] = [[STDIN], null];
            if (stream_select($read, $none, $none, $idle) === 0 || ($line = fgets(STDIN)) === false)
                return;
            $message = new Message(json_decode($line, true, 512, JSON_THROW_ON_ERROR));
            $answer = self::call($function, $message);
            self::say(['delivery' => $message->delivery] + $answer);
            if ($answer['verdict'] === 'retry')
                return;
        }
    }

    private static function call(callable $function, Message $message): array
    {
        try {
            self::checkRan($function($message));
            return ['verdict' => 'accept'];
        } catch (Throwable $error) {
            $verdict = match (true) {
                $error instanceof Reject => 'reject',
                $error instanceof Wait => 'wait',
                default => 'retry',
            };
            $text = $error->getMessage() ?: $error::class;
            return ['verdict' => $verdict, 'error' => substr($text, 0, 1000)];
        }
    }

    /** A function with a yield returns before its body has run, and one that returns a promise may do so: neither has
     *  handled the message. */
    public static function checkRan(mixed $result): void
    {
        if ($result instanceof Generator)
            throw new SkirnirException('the handler has a yield: its body would not run; write a plain function');
        if (is_object($result) && (method_exists($result, 'then') || method_exists($result, 'await')))
            throw new SkirnirException('the handler returned a promise: wait for it in the handler');
    }

    private static function say(array $line): void
    {
        fwrite(STDOUT, json_encode($line, JSON_INVALID_UTF8_SUBSTITUTE) . "\n");
    }
}
