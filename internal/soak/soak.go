package soak

import (
	"flag"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var duration = flag.Duration("soak", 0, "soak: how long each property is tried, beyond its number of events, from a fresh seed")

// gateSeed is the first seed where neither -soak nor -rapid.seed is given: the
// same code then has the same verdict each time.
const gateSeed = 1

// Check plays a property in rounds, of -rapid.checks plays each, until they have
// had at least so many events in all and the time of -soak is over. The property
// returns the number of events of a play. Rounds have seeds that follow each
// other; -rapid.seed says the first one, else it is a fresh one under -soak, and
// always the same without. What fails is told by rapid, with the seed that shows
// it again.
func Check(t *testing.T, least int, property func(*rapid.T) int) {
	t.Helper()
	given := flag.Lookup("rapid.seed").Value
	before := given.String()
	defer func() { _ = given.Set(before) }()
	first, err := strconv.ParseUint(before, 10, 64)
	if err != nil {
		t.Fatalf("read the flag rapid.seed: %v", err)
	}
	began := time.Now()
	switch {
	case first != 0:
	case *duration > 0:
		first = uint64(began.UnixNano())
	default:
		first = gateSeed
	}
	events, rounds := 0, 0
	t.Cleanup(func() {
		t.Logf("seed %d: %d events in %d rounds, %s", first, events, rounds, time.Since(began).Round(time.Millisecond))
	})
	for events < least || time.Since(began) < *duration {
		before := events
		if err := given.Set(strconv.FormatUint(first+uint64(rounds), 10)); err != nil {
			t.Fatalf("set the flag rapid.seed: %v", err)
		}
		rapid.Check(t, func(t *rapid.T) { events += property(t) })
		if rounds++; events == before {
			t.Fatal("a round of plays had no event")
		}
	}
}
