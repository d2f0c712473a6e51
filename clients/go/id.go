// SPDX-License-Identifier: MIT

package skirnir

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	unset       = "00000000-0000-0000-0000-000000000000"
	ulidLetters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
)

var (
	uuidForm = regexp.MustCompile(`^(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	ulidForm = regexp.MustCompile(`^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$`)
	lastLock sync.Mutex
	last     uint64
)

// NewID makes a UUID version 7. Ids of one process are ascending.
func NewID() (string, error) {
	var id [16]byte
	if _, err := rand.Read(id[6:]); err != nil {
		return "", err
	}
	fresh := uint64(time.Now().UnixMilli())<<12 | uint64(binary.BigEndian.Uint16(id[6:])&0x3ff)
	lastLock.Lock()
	if last++; fresh > last {
		last = fresh
	}
	number := last
	lastLock.Unlock()
	binary.BigEndian.PutUint64(id[:], number>>12<<16|7<<12|number&0xfff)
	id[8] = id[8]&0x3f | 0x80
	return formatID(id[:]), nil
}

// The canonical text of a UUID or a ULID.
func readID(text string) (string, error) {
	if uuidForm.MatchString(text) {
		return strings.ToLower(text), nil
	}
	if !ulidForm.MatchString(text) {
		return "", fmt.Errorf("message id '%s' is neither a UUID nor a ULID", text)
	}
	value := new(big.Int)
	for _, letter := range strings.ToUpper(text) {
		value.Lsh(value, 5)
		value.Or(value, big.NewInt(int64(strings.IndexRune(ulidLetters, letter))))
	}
	return formatID(value.FillBytes(make([]byte, 16))), nil
}

func formatID(id []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

func idBytes(text string) ([]byte, error) {
	return hex.DecodeString(strings.ReplaceAll(text, "-", ""))
}
