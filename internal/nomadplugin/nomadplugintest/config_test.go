package nomadplugintest_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/gangd/gangd/internal/nomadplugin/nomadplugintest"
	"github.com/gangd/gangd/internal/nomadplugin/schema"
)

// Each specification, from HCL text to the Go value that a plugin decodes.
func TestSpecifications(t *testing.T) {
	name := schema.Object(schema.Fields{"name": schema.Attr("name", schema.String, true)})
	one := map[string]any{"name": "one"}
	two := map[string]any{"name": "two"}
	for _, test := range []struct {
		spec *schema.Spec
		hcl  string
		want any
	}{
		{schema.Attr("a", schema.Bool, true), `a = true`, true},
		{schema.Attr("a", schema.Number, false), ``, nil},
		{schema.Attr("a", "list(number)", true), `a = [1, 2]`, []any{int64(1), int64(2)}},
		{schema.Attr("a", "map(string)", true), `a = { k = "v" }`, map[string]any{"k": "v"}},
		{schema.Literal(`"x"`), ``, "x"},
		{schema.Default(schema.Attr("a", schema.Number, false), schema.Literal("7")), ``, int64(7)},
		{schema.Default(schema.Attr("a", schema.Number, false), schema.Literal("7")), `a = 8`, int64(8)},
		{schema.Array(schema.Attr("a", schema.String, true), schema.Literal("true")), `a = "x"`, []any{"x", true}},
		{schema.Block("b", true, name), `b { name = "one" }`, one},
		{schema.Block("b", false, name), ``, nil},
		{schema.BlockAttrs("b", schema.Number, false), `b { x = 1 }`, map[string]any{"x": int64(1)}},
		{schema.BlockList("b", name), "b { name = \"two\" }\nb { name = \"one\" }", []any{two, one}},
		{schema.BlockSet("b", name), "b { name = \"one\" }\nb { name = \"one\" }", []any{one}},
		{schema.BlockMap("b", []string{"label"}, name), `b "x" { name = "one" }`, map[string]any{"x": one}},
	} {
		config := nomadplugintest.Config(t, schema.Object(schema.Fields{"value": test.spec}), test.hcl)
		var got struct {
			Value any `codec:"value"`
		}
		if err := config.Decode(&got); err != nil {
			t.Errorf("%q: %v", test.hcl, err)
		} else if !reflect.DeepEqual(got.Value, test.want) {
			t.Errorf("%v of %q is %#v, want %#v", test.spec, test.hcl, got.Value, test.want)
		}
	}
}

func TestWhatTheSchemaRefuses(t *testing.T) {
	one := schema.Attr("a", schema.Number, true)
	for _, test := range []struct {
		spec      *schema.Spec
		hcl, want string
	}{
		{one, ``, `The argument "a" is required`},
		{one, `a = "many"`, "a number is required"},
		{one, "a = 1\nb = 2", `An argument named "b" is not expected here`},
		{one, `a = `, "Missing expression"},
		{schema.BlockListN("b", 1, 2, one), ``, "At least 1"},
		{schema.BlockListN("b", 1, 1, one), "b { a = 1 }\nb { a = 2 }", "No more than 1"},
		{schema.Attr("a", "integer", true), `a = 1`, "the schema itself is wrong: value"},
		{schema.Literal("unquoted"), ``, "the schema itself is wrong: value"},
		{schema.Block("b", true, nil), ``, "the schema itself is wrong: value: there is no specification"},
		{schema.Default(one, nil), ``, "the schema itself is wrong: value: default"},
	} {
		_, err := nomadplugintest.ParseConfig(schema.Object(schema.Fields{"value": test.spec}), test.hcl)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.hcl, err, test.want)
		}
	}
}
