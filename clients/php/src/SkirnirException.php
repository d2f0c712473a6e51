<?php
// SPDX-License-Identifier: MIT

namespace Skirnir;

/** What was asked for cannot be done; nothing was written. */
class SkirnirException extends \RuntimeException
{
}
