<?php
// SPDX-License-Identifier: MIT

namespace Skirnir;

/** No further try would help: to the failed table at once. */
class Reject extends \RuntimeException
{
}
