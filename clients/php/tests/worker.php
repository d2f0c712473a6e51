<?php
// SPDX-License-Identifier: MIT
// Does what the body of a message says; see clients/vectors/README.md.

use Skirnir\Message;
use Skirnir\Reject;
use Skirnir\Wait;
use Skirnir\Worker;

require __DIR__ . '/autoload.php';

Worker::run(function (Message $message): void {
    $wanted = $message->json();
    $why = $wanted['why'] ?? '';
    match ($wanted['do']) {
        'accept' => null,
        'reject' => throw new Reject($why),
        'wait' => throw new Wait($why),
        'fail' => throw new RuntimeException($why),
        'print' => print("nothing that a consumer wants to know\n"),
    };
}, json_decode($argv[1]));
