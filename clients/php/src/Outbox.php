<?php
// SPDX-License-Identifier: MIT

namespace Skirnir;

use JsonException;
use PDO;

/**
 * Publishing: a message becomes a row in the caller's transaction, the same row, to the byte, that skr_publish() of
 * the C library writes. $ordered: the table has partition keys. $kafka: it is the table of `skirnir kafka-relay`.
 */
final class Outbox
{
    private const JSON = JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_LINE_TERMINATORS
        | JSON_PRESERVE_ZERO_FRACTION | JSON_THROW_ON_ERROR;
    private const LONGEST_HEADERS = 1024 * 1024;
    private const MOST_HEADERS = 993;

    private readonly string $table;
    private bool $isChecked = false;

    public function __construct(
        ?string $table = null,
        private readonly string $queue = 'outbox',
        private readonly bool $ordered = false,
        private readonly bool $kafka = false,
        private readonly ?string $topic = null,
        private readonly string $stampNamespace = 'Freyr\MessageBroker\Inbox',
    ) {
        $this->table = $table ?? ($kafka ? 'kafka_outbox' : 'messenger_outbox');
        if ($queue === '' || strlen($queue) > 190 || !self::isText($queue))
            throw new SkirnirException("queue name '$queue': 1 to 190 bytes of UTF-8 text are needed");
        if ($topic !== null && (!$kafka || preg_match('/\A[A-Za-z0-9._-]{1,249}\z/', $topic) !== 1))
            throw new SkirnirException("topic '$topic': 1 to 249 letters, digits, dots, underscores and hyphens are "
                . 'needed, in a kafka_outbox only');
    }

    /**
     * Adds a message in the caller's transaction, and returns its id. The relay sees it if and only if that commits.
     *
     * @param mixed $body text is sent as it is, anything else as JSON
     * @param ?string $key the partition key
     * @param array<string, string> $headers further ones, by name
     * @param float $delay seconds, at least, until it is sent
     */
    public function publish(PDO $connection, string $name, mixed $body, ?string $key = null, array $headers = [],
        ?string $id = null, float $delay = 0, string $contentType = 'application/json'): string
    {
        $database = new Database($connection);
        $table = $database->table($this->table);
        if (!$database->mayPublish())
            throw new SkirnirException('the connection is in autocommit: begin a transaction first, and commit it '
                . 'afterwards');
        $id = Id::read($id ?? Id::UNSET);
        if ($id === Id::UNSET)
            $id = Id::make();
        $body = is_string($body) ? $body : json_encode($body, self::JSON);
        $this->check($name, $body, $key, $headers, $delay, $contentType);
        $text = self::toJson($this->allHeaders($name, $id, $key, $headers, $contentType));
        if (strlen($text) > self::LONGEST_HEADERS)
            throw new SkirnirException("message $name: the headers have over " . self::LONGEST_HEADERS . ' bytes');
        if (!$this->isChecked)
            $database->checkEngine($this->table);
        $this->isChecked = true;
        $row = $this->kafka
            ? ['topic' => $this->topic ?? $name, 'payload_json' => $body, 'payload_headers' => $text,
                'key' => $key === null || $key === '' ? $id : $key]
            : ['body' => $body, 'headers' => $text, 'queue_name' => $this->queue]
                + ($this->ordered ? ['partition_key' => $key] : []);
        $clock = $this->kafka ? [] : ['created_at' => $database->now(), 'available_at' =>
            $delay > 0 ? $database->later((int) ($delay * 1000)) : $database->now()];
        $columns = array_map($database->quote(...), array_keys($row + $clock));
        $database->run("INSERT INTO $table (" . implode(', ', $columns) . ') VALUES ('
            . implode(', ', [...array_fill(0, count($row), '?'), ...array_values($clock)]) . ')', array_values($row));
        return $id;
    }

    private function check(string $name, string $body, ?string $key, array $headers, float $delay,
        string $contentType): void
    {
        $word = '[a-z][a-z0-9]*';
        if (strlen($name) > 255 || preg_match("/\\A$word(\\.$word)+\\z/", $name) !== 1)
            throw new SkirnirException("message name '$name': words of lower case letters and digits, joined by dots, "
                . 'are needed; order.placed would do');
        if (!self::isText($body))
            throw new SkirnirException("message $name: the body is not UTF-8 text, or holds a zero byte");
        if ($key !== null && (strlen($key) > 255 || !self::isText($key)))
            throw new SkirnirException("message $name: the partition key is over 255 bytes, or not UTF-8 text");
        if ($contentType === '' || !self::isText($contentType) || self::hasControl($contentType))
            throw new SkirnirException("message $name: the content type is empty, or not UTF-8 text, or holds a "
                . 'control character');
        self::checkHeaders($name, $headers);
        if ($this->kafka)
            self::checkKafka($name, $body, $delay);
        elseif ($this->ordered && $key === null)
            throw new SkirnirException("message $name has no partition key, which this ordered outbox needs");
        elseif (!$this->ordered && $key !== null && $key !== '')
            throw new SkirnirException("message $name has the partition key '$key', but this outbox keeps no order");
        if ($delay < 0)
            throw new SkirnirException("message $name: the delay is negative");
    }

    private static function checkHeaders(string $name, array $headers): void
    {
        if (count($headers) > self::MOST_HEADERS)
            throw new SkirnirException("message $name has more than " . self::MOST_HEADERS . ' headers');
        foreach ($headers as $header => $value) {
            $header = (string) $header;  // PHP makes numbers of names that look so
            if ($header === '' || !is_string($value))
                throw new SkirnirException("message $name: header '$header' has no name or no value");
            if (self::hasControl($header))
                throw new SkirnirException("message $name: the name of a header holds a control character");
            if (in_array($header, ['type', 'Content-Type', 'X-Message-Id'], true)
                || preg_match('/\AX-Message-Stamp-.*(MessageIdStamp|PartitionKeyStamp)\z/s', $header) === 1)
                throw new SkirnirException("message $name: header '$header' is written by the library");
            if (!self::isText($header) || !self::isText($value))
                throw new SkirnirException("message $name: header '$header' is not UTF-8");
        }
        self::checkTrace($name, $headers['traceparent'] ?? null, $headers['tracestate'] ?? null);
    }

    private static function checkTrace(string $name, ?string $parent, ?string $state): void
    {
        $form = '/\A(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(\z|-)/';
        if ($parent !== null && (preg_match($form, $parent) !== 1
            || str_starts_with($parent, '00') && strlen($parent) !== 55))
            throw new SkirnirException("message $name: traceparent is '$parent'");
        if ($state === null)
            return;
        if ($parent === null)
            throw new SkirnirException("message $name: tracestate means nothing without a traceparent");
        $members = explode(',', $state);
        $isWrong = fn (string $member) => trim($member, " \t") !== '' && !strpos(ltrim($member, " \t"), '=');
        if (count($members) > 32 || preg_match('/\A[\t -~]*\z/', $state) !== 1 || array_filter($members, $isWrong))
            throw new SkirnirException("message $name: tracestate is '$state'");
    }

    private static function checkKafka(string $name, string $body, float $delay): void
    {
        if ($delay > 0)
            throw new SkirnirException("message $name has a due time, which kafka_outbox does not know");
        try {
            json_decode($body, false, 1024, JSON_THROW_ON_ERROR);
        } catch (JsonException $error) {
            throw new SkirnirException("message $name: its body must be JSON: {$error->getMessage()}", 0, $error);
        }
    }

    /** @return array<string, string> */
    private function allHeaders(string $name, string $id, ?string $key, array $headers, string $contentType): array
    {
        $stamp = "X-Message-Stamp-{$this->stampNamespace}\\";
        $has = $this->stampNamespace !== '';
        return ['type' => $name]
            + ($has ? ["{$stamp}MessageIdStamp" => '[' . self::toJson(['messageId' => $id]) . ']'] : [])
            + ['X-Message-Id' => $id]
            + ($has && $key !== null
                ? ["{$stamp}PartitionKeyStamp" => '[' . self::toJson(['partitionKey' => $key]) . ']'] : [])
            + $headers + ['Content-Type' => $contentType];
    }

    private static function toJson(array $members): string
    {
        return json_encode((object) $members, self::JSON);
    }

    private static function isText(string $text): bool
    {
        return !str_contains($text, "\0") && preg_match('//u', $text) === 1;
    }

    private static function hasControl(string $text): bool
    {
        return preg_match('/[\x00-\x1f\x7f]/', $text) === 1;
    }
}
