package gpu

import (
	"fmt"
	"strings"
)

// family is a product line: the words that make a name of NVML's one of it,
// what it is called here, and the sizes of memory in which it is sold, in GB.
type family struct {
	words   string
	model   string
	sizesGB []uint64
}

// families knows the sizes because a driver's number leaves out what the board
// keeps for itself, and so does not round to the size on the box.
var families = []family{
	{"GB300", "GB300", []uint64{288}},
	{"GB200", "GB200", []uint64{186}},
	{"B300", "B300", []uint64{288}},
	{"B200", "B200", []uint64{180}},
	{"GH200", "GH200", []uint64{96, 144}},
	{"H200", "H200", []uint64{141}},
	{"H100", "H100", []uint64{64, 80, 94, 96}},
	{"H800", "H800", []uint64{80, 94}},
	{"H20", "H20", []uint64{96, 141}},
	{"A100", "A100", []uint64{40, 80}},
	{"A800", "A800", []uint64{40, 80}},
	{"RTX PRO 6000", "RTXPRO6000", []uint64{96}},
	{"RTX 6000 Ada", "RTX6000ADA", []uint64{48}},
	{"RTX A6000", "RTXA6000", []uint64{48}},
	{"RTX 5090", "RTX5090", []uint64{32}},
	{"RTX 4090", "RTX4090", []uint64{24}},
	{"RTX 3090", "RTX3090", []uint64{24}},
	{"L40S", "L40S", []uint64{48}},
	{"L40", "L40", []uint64{48}},
	{"L4", "L4", []uint64{24}},
	{"A40", "A40", []uint64{48}},
	{"A30", "A30", []uint64{24}},
	{"A10G", "A10G", []uint64{24}},
	{"A10", "A10", []uint64{24}},
	{"A16", "A16", []uint64{16}},
	{"A2", "A2", []uint64{16}},
	{"V100", "V100", []uint64{16, 32}},
	{"T4", "T4", []uint64{16}},
}

// modelName makes the name by which gangs ask for a product, "H100-80GB", from
// NVML's name and the memory. Form factors and memory kinds are left out; a
// product that is not in the table keeps the words of its name.
func modelName(name string, memoryMiB uint64) string {
	words := splitName(name)
	for _, f := range families {
		if contains(words, splitName(f.words)) {
			return fmt.Sprintf("%s-%dGB", f.model, nearest(f.sizesGB, memoryMiB))
		}
	}
	const mibPerGiB = 1024
	kept := make([]string, 0, len(words))
	for _, w := range words {
		if w != "NVIDIA" && w != "TESLA" && w != "GEFORCE" && w != "QUADRO" && !strings.HasSuffix(w, "GB") {
			kept = append(kept, w)
		}
	}
	if len(kept) == 0 {
		kept = []string{"GPU"}
	}
	return fmt.Sprintf("%s-%dGB", strings.Join(kept, "-"), (memoryMiB+mibPerGiB-1)/mibPerGiB)
}

func splitName(name string) []string {
	return strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
}

// contains tells whether words holds the sought words, one after another.
func contains(words, sought []string) bool {
	for i := 0; i+len(sought) <= len(words); i++ {
		if strings.Join(words[i:i+len(sought)], " ") == strings.Join(sought, " ") {
			return true
		}
	}
	return false
}

// nearest finds the size closest to the memory that the driver reports.
func nearest(sizesGB []uint64, memoryMiB uint64) uint64 {
	distance := func(gb uint64) uint64 {
		mib := gb * 1024
		return max(mib, memoryMiB) - min(mib, memoryMiB)
	}
	best := sizesGB[0]
	for _, gb := range sizesGB[1:] {
		if distance(gb) < distance(best) {
			best = gb
		}
	}
	return best
}
