package record

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/gangd/gangd/internal/cluster"
	"github.com/gangd/gangd/internal/gang"
)

// What an engine is told and knows lies within these bounds. A file that has
// something beyond them is damaged, and what the engine would make of it has none:
// sums that overflow, estimates that never grow to an end, lists for nodes that
// there are not.
const (
	maxCount    = 1 << 30 // of anything, positive or negative
	maxQuantity = 1e15
	maxDuration = 100 * 365 * 24 * time.Hour
)

var (
	firstTime = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC)
)

// bounded finds a value that is out of bounds in what was decoded. Times that are
// numbers are not: the engine has some that are never.
func bounded(v any) error { return within(reflect.ValueOf(v)) }

func within(v reflect.Value) error {
	switch v.Type() {
	case reflect.TypeFor[time.Time]():
		if at := v.Interface().(time.Time); !at.IsZero() && (at.Before(firstTime) || at.After(lastTime)) {
			return fmt.Errorf("%s is no time between %d and %d", at.Format(time.RFC3339), firstTime.Year(), lastTime.Year())
		}
		return nil
	case reflect.TypeFor[time.Duration]():
		if d := v.Interface().(time.Duration); d < 0 || d > maxDuration {
			return fmt.Errorf("%s is no duration between 0s and %s", d, maxDuration)
		}
		return nil
	case reflect.TypeFor[gang.Member]():
		return indexes(v.Interface().(gang.Member).GPUs)
	}
	switch v.Kind() {
	case reflect.Int:
		if n := v.Int(); n < -maxCount || n > maxCount {
			return fmt.Errorf("%d is not between %d and %d", n, -maxCount, maxCount)
		}
	case reflect.Float64:
		if f := v.Float(); !(math.Abs(f) <= maxQuantity) {
			return fmt.Errorf("%g is not between %g and %g", f, -maxQuantity, maxQuantity)
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return within(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if err := within(v.Field(i)); err != nil {
				return fmt.Errorf("%s: %w", fieldName(v.Type().Field(i)), err)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := within(v.Index(i)); err != nil {
				return fmt.Errorf("number %d: %w", i, err)
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if err := within(v.MapIndex(key)); err != nil {
				return fmt.Errorf("%v: %w", key, err)
			}
		}
	}
	return nil
}

// fieldName is the name of a field in JSON.
func fieldName(f reflect.StructField) string {
	if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
		return name
	}
	return f.Name
}

func indexes(gpus []int) error {
	for i, at := range gpus {
		if at < 0 || at >= cluster.MaxGPUsPerNode || i > 0 && at <= gpus[i-1] {
			return fmt.Errorf("%v are no indexes of GPUs: they ascend, from 0 to %d", gpus, cluster.MaxGPUsPerNode-1)
		}
	}
	return nil
}
