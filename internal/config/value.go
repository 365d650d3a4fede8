package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/gangd/gangd/internal/gang"
)

// maxNesting bounds how deep values may lie in one another.
const maxNesting = 100

func text(into *string) func(cty.Value) error {
	return func(v cty.Value) error {
		if v.IsNull() || v.Type() != cty.String {
			return errors.New("must be a string in quotes")
		}
		*into = v.AsString()
		return nil
	}
}

func boolean(into *bool) func(cty.Value) error {
	return func(v cty.Value) error {
		if v.IsNull() || v.Type() != cty.Bool {
			return errors.New("must be true or false")
		}
		*into = v.True()
		return nil
	}
}

// number takes an integer that fits int32: no count here is larger.
func number(into *int) func(cty.Value) error {
	return func(v cty.Value) error {
		if v.IsNull() || v.Type() != cty.Number {
			return errors.New("must be a number, without quotes")
		}
		n, accuracy := v.AsBigFloat().Int64()
		if !v.AsBigFloat().IsInt() {
			return errors.New("must be a whole number")
		}
		if accuracy != big.Exact || n != int64(int32(n)) {
			return errors.New("is a larger number than any that would do")
		}
		*into = int(n)
		return nil
	}
}

func numberBetween(into *int, low, high int) func(cty.Value) error {
	return func(v cty.Value) error {
		var n int
		if err := number(&n)(v); err != nil {
			return err
		}
		if n < low || n > high {
			return fmt.Errorf("is %d, and must be between %d and %d", n, low, high)
		}
		*into = n
		return nil
	}
}

// maxCount is more than anything that is counted here comes to.
const maxCount = 1_000_000

// fraction takes a number that need not be whole.
func fraction(into *float64, low, high float64) func(cty.Value) error {
	return func(v cty.Value) error {
		if v.IsNull() || v.Type() != cty.Number {
			return errors.New("must be a number, without quotes")
		}
		f, _ := v.AsBigFloat().Float64()
		if !(f >= low && f <= high) {
			return fmt.Errorf("is %g, and must be between %g and %g", f, low, high)
		}
		*into = f
		return nil
	}
}

// Factors, speeds and weights lie between these.
const minFactor, maxFactor = 1e-3, 1e6

// factor takes a number by which something is multiplied or divided.
func factor(into *float64) func(cty.Value) error { return fraction(into, minFactor, maxFactor) }

// maxDuration is 10 years, so that sums of some durations cannot overflow.
const maxDuration = 87_600 * time.Hour

// duration takes a Go duration that is not negative.
func duration(into *time.Duration) func(cty.Value) error {
	return func(v cty.Value) error {
		var s string
		if text(&s)(v) != nil {
			return errors.New(`must be a duration in quotes, such as "90s" or "1h30m"`)
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf(`is %q, which is no duration: write it as "90s" or "1h30m"`, s)
		}
		if d < 0 {
			return fmt.Errorf("is %q, and must not be negative", s)
		}
		if d > maxDuration {
			return fmt.Errorf("is %q, and must be at most 10 years, 87600h", s)
		}
		*into = d
		return nil
	}
}

var sizeRule = regexp.MustCompile(`^([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(MiB|GiB|TiB|MB|GB|TB)$`)

var sizeUnits = map[string]float64{
	"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	"MB": 1e6, "GB": 1e9, "TB": 1e12,
}

// maxSizeMiB is 1 TiB: far more memory than a GPU has.
const maxSizeMiB = 1 << 20

// size takes an amount of memory and keeps it in MiB, rounded down: "80GB" on
// a data sheet must not ask for more than the 80 GB card has.
func size(intoMiB *int) func(cty.Value) error {
	return func(v cty.Value) error {
		var s string
		if text(&s)(v) != nil {
			return errors.New(`must be a size in quotes, such as "60GiB" or "80GB"`)
		}
		m := sizeRule.FindStringSubmatch(s)
		if m == nil {
			return fmt.Errorf(`is %q, which is no size: write it as "60GiB" or "80GB"`, s)
		}
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return fmt.Errorf("is %q: %w", s, err)
		}
		mib := n * sizeUnits[m[2]] / (1 << 20)
		if mib > maxSizeMiB {
			return fmt.Errorf("is %q, and must be at most 1TiB", s)
		}
		*intoMiB = int(mib)
		return nil
	}
}

// entries hands on the entries of an object in the order of their keys. What is
// wrong with one is told with its key.
func entries(example string, each func(key string, value cty.Value) error) func(cty.Value) error {
	return func(v cty.Value) error {
		if v.IsNull() || !v.Type().IsObjectType() {
			return fmt.Errorf("must be an object, such as %s", example)
		}
		for it := v.ElementIterator(); it.Next(); {
			key, value := it.Element()
			if err := each(key.AsString(), value); err != nil {
				return fmt.Errorf("holds %q, which %w", key.AsString(), err)
			}
		}
		return nil
	}
}

var countRule = regexp.MustCompile(`^[1-9][0-9]{0,6}$`)

// sizes takes the sizes of an elastic gang and their run times, and sorts them.
func sizes(into *[]gang.Size) func(cty.Value) error {
	return func(v cty.Value) error {
		var list []gang.Size
		err := entries(`{ "8" = "110s", "16" = "60s" }`, func(key string, value cty.Value) error {
			if !countRule.MatchString(key) {
				return errors.New("is no number of GPUs")
			}
			gpus, err := strconv.Atoi(key)
			if err != nil {
				return err
			}
			list = append(list, gang.Size{GPUs: gpus})
			return duration(&list[len(list)-1].Run)(value)
		})(v)
		if err == nil && len(list) == 0 {
			err = errors.New(`must hold sizes, such as { "8" = "110s", "16" = "60s" }`)
		}
		if err != nil {
			return err
		}
		slices.SortFunc(list, func(a, b gang.Size) int { return cmp.Compare(a.GPUs, b.GPUs) })
		*into = list
		return nil
	}
}

func texts(into *[]string) func(cty.Value) error {
	return func(v cty.Value) error {
		if v.IsNull() || !v.Type().IsTupleType() {
			return errors.New(`must be a list of strings, such as ["spine", "leaf"]`)
		}
		var list []string
		for _, element := range v.AsValueSlice() {
			var s string
			if text(&s)(element) != nil {
				return errors.New(`must be a list of strings, such as ["spine", "leaf"]`)
			}
			list = append(list, s)
		}
		*into = list
		return nil
	}
}

func oneOf(into *string, choices ...string) func(cty.Value) error {
	return func(v cty.Value) error {
		var s string
		if err := text(&s)(v); err != nil {
			return err
		}
		for _, c := range choices {
			if s == c {
				*into = s
				return nil
			}
		}
		return fmt.Errorf(`is %q, and must be one of "%s"`, s, strings.Join(choices, `", "`))
	}
}

// object takes an object and keeps it as JSON.
func object(into *json.RawMessage) func(cty.Value) error {
	return func(v cty.Value) error {
		if v.IsNull() || !v.Type().IsObjectType() {
			return errors.New(`must be an object, such as { prompt = "a red ball" }`)
		}
		var b bytes.Buffer
		if err := writeJSON(&b, v, 0); err != nil {
			return err
		}
		*into = b.Bytes()
		return nil
	}
}

// writeJSON writes whole numbers as such, whatever their size, so that a
// runner reads a seed as the integer it was.
func writeJSON(b *bytes.Buffer, v cty.Value, depth int) error {
	switch t := v.Type(); {
	case depth > maxNesting:
		return fmt.Errorf("is nested deeper than %d", maxNesting)
	case v.IsNull():
		b.WriteString("null")
	case t == cty.String:
		return writeString(b, v.AsString())
	case t == cty.Bool:
		fmt.Fprintf(b, "%t", v.True())
	case t == cty.Number:
		return writeNumber(b, v.AsBigFloat())
	case t.IsTupleType():
		return writeArray(b, v, depth)
	case t.IsObjectType():
		return writeObject(b, v, depth)
	default:
		return fmt.Errorf("holds a %s, which JSON does not have", t.FriendlyName())
	}
	return nil
}

// writeString leaves <, > and & as they are: a prompt is read by people.
func writeString(b *bytes.Buffer, s string) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the newline that Encode adds
	return nil
}

func writeNumber(b *bytes.Buffer, f *big.Float) error {
	if f.IsInf() || f.MantExp(nil) > 1024 {
		return errors.New("holds a number too large for JSON's readers")
	}
	if f.IsInt() {
		n, _ := f.Int(nil)
		b.WriteString(n.String())
		return nil
	}
	x, _ := f.Float64()
	out, err := json.Marshal(x)
	b.Write(out)
	return err
}

func writeArray(b *bytes.Buffer, v cty.Value, depth int) error {
	b.WriteByte('[')
	for i, element := range v.AsValueSlice() {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeJSON(b, element, depth+1); err != nil {
			return err
		}
	}
	b.WriteByte(']')
	return nil
}

func writeObject(b *bytes.Buffer, v cty.Value, depth int) error {
	b.WriteByte('{')
	first := true
	for it := v.ElementIterator(); it.Next(); {
		key, element := it.Element()
		if !first {
			b.WriteByte(',')
		}
		first = false
		if err := writeString(b, key.AsString()); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := writeJSON(b, element, depth+1); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}
