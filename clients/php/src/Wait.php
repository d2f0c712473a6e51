<?php
// SPDX-License-Identifier: MIT

namespace Skirnir;

/** Something else has locked what is needed: again soon, at no cost. */
class Wait extends \RuntimeException
{
}
