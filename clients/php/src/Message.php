<?php
// SPDX-License-Identifier: MIT

namespace Skirnir;

use JsonException;

/** What a worker is given. $body is the bytes of the body. */
final class Message
{
    public readonly int $delivery, $attempt;
    public readonly string $name, $source, $body;
    public readonly ?string $id, $type, $partition_key, $content_type, $traceparent, $tracestate;
    /** @var array<string, string> */
    public readonly array $headers;
    /** @var array{table: string, name: string} */
    public readonly array $deduplication;

    public function __construct(array $members)
    {
        if (($members['body_encoding'] ?? '') === 'base64')
            $members['body'] = base64_decode($members['body']);
        foreach ($members as $name => $value)
            if (property_exists($this, $name))
                $this->$name = $value;
    }

    /** The body, parsed. One that is not JSON is rejected. */
    public function json(): mixed
    {
        try {
            return json_decode($this->body, true, 512, JSON_THROW_ON_ERROR);
        } catch (JsonException $error) {
            throw new Reject("the body is not JSON: {$error->getMessage()}", 0, $error);
        }
    }
}
