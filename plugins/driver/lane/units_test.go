package lane

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// What is read on disk or on the wire as a bare number has its unit in its name.
func TestDurationsHaveTheirUnit(t *testing.T) {
	found := 0
	for _, of := range []any{Config{}, Request{}, Usage{}, Status{}, Exit{}} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(of)) {
			if field.Type != reflect.TypeFor[time.Duration]() {
				continue
			}
			found++
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !strings.HasSuffix(name, "_ns") {
				t.Errorf("%T.%s is called %q", of, field.Name, name)
			}
		}
	}
	if found != 5 {
		t.Errorf("%d durations were looked at, want 5", found)
	}
}
