package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ryanuber/columnize"
)

// delimiter separates cells on their way into columnize; clean keeps it out of
// the cells themselves.
const delimiter = "\x1f"

// table aligns rows, the first of which has the titles. Columns in which no
// row has anything are left out.
func table(rows [][]string) string {
	kept := make([][]string, len(rows))
	for column := range rows[0] {
		if !slices.ContainsFunc(rows[1:], func(row []string) bool { return row[column] != "" }) {
			continue
		}
		for i, row := range rows {
			kept[i] = append(kept[i], row[column])
		}
	}
	return columns(kept, "  ")
}

// keyValues aligns pairs as "Key = value"; pairs without a value are left out.
func keyValues(pairs [][2]string) string {
	var rows [][]string
	for _, p := range pairs {
		if p[1] != "" {
			rows = append(rows, []string{p[0], p[1]})
		}
	}
	return columns(rows, " = ")
}

func columns(rows [][]string, glue string) string {
	lines := make([]string, len(rows))
	for i, row := range rows {
		cells := make([]string, len(row))
		for j, cell := range row {
			cells[j] = strings.ReplaceAll(clean(cell), "\n", " ")
		}
		lines[i] = strings.Join(cells, delimiter)
	}
	text := columnize.Format(lines, &columnize.Config{Delim: delimiter, Glue: glue, NoTrim: true})
	out := strings.Split(text, "\n")
	for i := range out {
		out[i] = strings.TrimRight(out[i], " ")
	}
	return strings.Join(out, "\n")
}

// colours is what runners' messages carry when they expect a terminal.
var colours = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)

// clean keeps what an agent or a runner wrote from steering the terminal.
func clean(s string) string {
	s = colours.ReplaceAllString(s, "")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r != '\n' && (r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0):
			return -1
		}
		return r
	}, s)
}

// fit cuts lines to the width of a terminal; what goes elsewhere stays whole.
func (t *terminal) fit(text string) string {
	if !t.live {
		return text
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = ellipsis(lines[i], t.width())
	}
	return strings.Join(lines, "\n")
}

// section prints a title and what belongs to it, after an empty line.
func (t *terminal) section(title, text string) {
	if text == "" {
		return
	}
	if t.bold {
		title = "\x1b[1m" + title + "\x1b[0m"
	}
	fmt.Fprintf(t.out, "\n%s\n%s\n", title, text)
}

// printJSON prints a value as the API gives it, indented.
func (t *terminal) printJSON(value any) int {
	e := json.NewEncoder(t.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		fmt.Fprintf(t.err, "Error: print JSON: %v\n", err)
		return exitRefused
	}
	return exitOK
}

// duration prints what a person wants to know of a length of time.
func duration(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// millis is the time of a record; zero where it has none.
func millis(unixMilli int64) time.Time {
	if unixMilli == 0 {
		return time.Time{}
	}
	return time.UnixMilli(unixMilli).UTC()
}

// moment prints a time of a record, with how long ago it was.
func (t *terminal) moment(unixMilli int64) string {
	if unixMilli == 0 {
		return ""
	}
	at := millis(unixMilli)
	return fmt.Sprintf("%s (%s ago)", at.Format("2006-01-02 15:04:05 UTC"), duration(t.now().Sub(at)))
}

// ranges prints GPU indexes in the order given, runs joined: 0-3,6.
func ranges(indexes []int) string {
	var parts []string
	for i := 0; i < len(indexes); {
		j := i
		for j+1 < len(indexes) && indexes[j+1] == indexes[j]+1 {
			j++
		}
		part := strconv.Itoa(indexes[i])
		if j > i {
			part += "-" + strconv.Itoa(indexes[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// short is the beginning of an ID, as long as Nomad shows of its own.
func short(id string) string { return id[:min(8, len(id))] }

func bytesText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

func memoryText(mib int) string {
	if mib%(1<<10) == 0 {
		return fmt.Sprintf("%d GiB", mib>>10)
	}
	return fmt.Sprintf("%d MiB", mib)
}

// ellipsis cuts a text that is longer than width; a width of 0 has no end.
func ellipsis(s string, width int) string {
	r := []rune(s)
	if width <= 0 || len(r) <= width {
		return s
	}
	if width <= 3 {
		return string(r[:width])
	}
	return string(r[:width-3]) + "..."
}
