package nomadplugin

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fieldError is what is wrong with a configuration, and where.
type fieldError struct {
	path string
	err  error
}

func (e *fieldError) Error() string {
	if e.path == "" {
		return "configuration: " + e.err.Error()
	}
	return fmt.Sprintf("configuration: %s: %v", strings.TrimPrefix(e.path, "."), e.err)
}

func (e *fieldError) Unwrap() error { return e.err }

var durationType = reflect.TypeFor[time.Duration]()

func assignConfig(into any, value any) error {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() || target.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("decode configuration into %T: a pointer to a struct is needed", into)
	}
	return assign(target.Elem(), value, "")
}

// assign sets target, of any type that a configuration struct may contain, to
// a value of readValue.
func assign(target reflect.Value, value any, path string) error {
	if value == nil {
		return nil
	}
	if target.Type() == durationType {
		return assignDuration(target, value, path)
	}
	switch target.Kind() {
	case reflect.Pointer:
		pointed := reflect.New(target.Type().Elem())
		if err := assign(pointed.Elem(), value, path); err != nil {
			return err
		}
		target.Set(pointed)
		return nil
	case reflect.Struct:
		return assignStruct(target, value, path)
	case reflect.Map:
		return assignMap(target, value, path)
	case reflect.Slice:
		return assignSlice(target, value, path)
	case reflect.Interface:
		if target.NumMethod() == 0 {
			target.Set(reflect.ValueOf(value))
			return nil
		}
	}
	return assignScalar(target, value, path)
}

func assignStruct(target reflect.Value, value any, path string) error {
	values, ok := value.(map[string]any)
	if !ok {
		return mismatch(path, "a block or an object", value)
	}
	fields := make(map[string]reflect.Value)
	for _, field := range reflect.VisibleFields(target.Type()) {
		name, _, _ := strings.Cut(field.Tag.Get("codec"), ",")
		if name != "" && name != "-" && field.IsExported() {
			fields[name] = target.FieldByIndex(field.Index)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		field, ok := fields[name]
		if !ok {
			return &fieldError{path + "." + name, fmt.Errorf("there is no such field; there are %s",
				strings.Join(slices.Sorted(maps.Keys(fields)), ", "))}
		}
		if err := assign(field, values[name], path+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func assignMap(target reflect.Value, value any, path string) error {
	values, ok := value.(map[string]any)
	if !ok || target.Type().Key().Kind() != reflect.String {
		return mismatch(path, "a map", value)
	}
	filled := reflect.MakeMapWithSize(target.Type(), len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		element := reflect.New(target.Type().Elem()).Elem()
		if err := assign(element, values[name], fmt.Sprintf("%s[%q]", path, name)); err != nil {
			return err
		}
		filled.SetMapIndex(reflect.ValueOf(name).Convert(target.Type().Key()), element)
	}
	target.Set(filled)
	return nil
}

func assignSlice(target reflect.Value, value any, path string) error {
	if text, ok := value.(string); ok && target.Type().Elem().Kind() == reflect.Uint8 {
		target.SetBytes([]byte(text))
		return nil
	}
	values, ok := value.([]any)
	if !ok {
		return mismatch(path, "a list", value)
	}
	filled := reflect.MakeSlice(target.Type(), len(values), len(values))
	for i, element := range values {
		if err := assign(filled.Index(i), element, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	target.Set(filled)
	return nil
}

func assignScalar(target reflect.Value, value any, path string) error {
	switch target.Kind() {
	case reflect.String:
		text, ok := value.(string)
		if !ok {
			return mismatch(path, "a text", value)
		}
		target.SetString(text)
	case reflect.Bool:
		truth, ok := value.(bool)
		if !ok {
			return mismatch(path, "true or false", value)
		}
		target.SetBool(truth)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64:
		return assignNumber(target, value, path)
	default:
		return &fieldError{path, fmt.Errorf("a field of type %s cannot be read from a configuration", target.Type())}
	}
	return nil
}

// assignNumber goes through the decimal text of the number: it is exact for
// every width, and HCL sends a number as text where no binary form is exact.
func assignNumber(target reflect.Value, value any, path string) error {
	var text string
	switch number := value.(type) {
	case int64:
		text = strconv.FormatInt(number, 10)
	case uint64:
		text = strconv.FormatUint(number, 10)
	case float64:
		text = strconv.FormatFloat(number, 'f', -1, 64)
	case string:
		text = number
	default:
		return mismatch(path, "a number", value)
	}
	bits := target.Type().Bits()
	var err error
	switch {
	case target.CanFloat():
		var number float64
		if number, err = strconv.ParseFloat(text, bits); err == nil {
			target.SetFloat(number)
		}
	case target.CanInt():
		var number int64
		if number, err = strconv.ParseInt(text, 10, bits); err == nil {
			target.SetInt(number)
		}
	default:
		var number uint64
		if number, err = strconv.ParseUint(text, 10, bits); err == nil {
			target.SetUint(number)
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, strconv.ErrRange):
		return &fieldError{path, fmt.Errorf("%s is out of the range of %s", text, target.Kind())}
	case target.CanFloat():
		return mismatch(path, "a number", value)
	case target.CanUint():
		return mismatch(path, "a whole number from 0", value)
	}
	return mismatch(path, "a whole number", value)
}

func assignDuration(target reflect.Value, value any, path string) error {
	text, ok := value.(string)
	if !ok {
		return mismatch(path, `a duration such as "30s"`, value)
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		return mismatch(path, `a duration such as "30s"`, value)
	}
	target.SetInt(int64(duration))
	return nil
}

// mismatch says what was found in the place of what was wanted.
func mismatch(path, wanted string, value any) error {
	found := fmt.Sprintf("%v", value)
	switch typed := value.(type) {
	case string:
		found = fmt.Sprintf("the text %q", typed)
	case map[string]any:
		found = "a block or an object"
	case []any:
		found = "a list"
	}
	return &fieldError{path, fmt.Errorf("%s is expected, found %s", wanted, found)}
}
