<?php
// SPDX-License-Identifier: MIT

namespace Skirnir;

/** Ids of messages, as the texts of UUIDs. */
final class Id
{
    public const UNSET = '00000000-0000-0000-0000-000000000000';
    private const ULID = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
    private static int $last = 0;

    /** A UUID version 7. Ids of one process are ascending. */
    public static function make(): string
    {
        $fresh = (int) (microtime(true) * 1000) << 12 | random_int(0, 0x3ff);
        self::$last = max($fresh, self::$last + 1);
        $random = random_bytes(8);
        $random[0] = chr(ord($random[0]) & 0x3f | 0x80);
        return self::format(sprintf('%012x7%03x', self::$last >> 12, self::$last & 0xfff) . bin2hex($random));
    }

    /** The canonical text of a UUID or a ULID. */
    public static function read(string $text): string
    {
        if (preg_match('/\A[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\z/i', $text) === 1)
            return strtolower($text);
        if (preg_match('/\A[0-7][' . self::ULID . ']{25}\z/i', $text) !== 1)
            throw new SkirnirException("message id '$text' is neither a UUID nor a ULID");
        $bits = '';
        foreach (str_split(strtoupper($text)) as $letter)
            $bits .= sprintf('%05b', strpos(self::ULID, $letter));
        $hex = '';
        foreach (str_split(substr($bits, 2), 4) as $nibble)
            $hex .= dechex(bindec($nibble));
        return self::format($hex);
    }

    public static function bytes(string $id): string
    {
        return hex2bin(str_replace('-', '', $id));
    }

    private static function format(string $hex): string
    {
        return vsprintf('%s%s-%s-%s-%s-%s%s%s', str_split($hex, 4));
    }
}
