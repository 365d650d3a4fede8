package sampler

import "math"

// philox is Philox4x32-10 of Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3": four random words for each
// counter and key, without any state.
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		p0 := uint64(0xD2511F53) * uint64(counter[0])
		p1 := uint64(0xCD9E8D57) * uint64(counter[2])
		counter = [4]uint32{
			uint32(p1>>32) ^ counter[1] ^ key[0], uint32(p1),
			uint32(p0>>32) ^ counter[3] ^ key[1], uint32(p0),
		}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return counter
}

// gaussian fills dst with standard normal numbers that depend on nothing but seed, step and frame.
func gaussian(dst []float32, seed uint64, step, frame int) {
	key := [2]uint32{uint32(seed), uint32(seed >> 32)}
	for i := 0; i < len(dst); i += 4 {
		w := philox([4]uint32{uint32(i / 4), uint32(frame), uint32(step), 0}, key)
		a, b := boxMuller(w[0], w[1])
		c, d := boxMuller(w[2], w[3])
		copy(dst[i:], []float32{a, b, c, d})
	}
}

func boxMuller(u, v uint32) (a, b float32) {
	radius := math.Sqrt(-2 * math.Log((float64(u)+0.5)/(1<<32)))
	sin, cos := math.Sincos(float64(v) * (2 * math.Pi / (1 << 32)))
	return float32(radius * cos), float32(radius * sin)
}
