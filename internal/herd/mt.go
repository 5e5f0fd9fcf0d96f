package main

// mt19937 is CPython's random.Random: its random() draws the same numbers from the same integer
// seed, so that a run of the published table can be repeated draw for draw.
//
// Source: Matsumoto and Nishimura, mt19937ar.c, 2002: init_by_array and genrand_res53.
type mt19937 struct {
	state [624]uint32
	next  int
}

// newMT is random.Random(seed). The seed's 32-bit digits are the key, the lowest first; 0 has one.
func newMT(seed uint64) *mt19937 {
	key := []uint32{uint32(seed)}
	if high := uint32(seed >> 32); high != 0 {
		key = append(key, high)
	}
	var m mt19937
	s, n := &m.state, len(m.state)
	s[0] = 19650218
	for i := 1; i < n; i++ {
		s[i] = 1812433253*(s[i-1]^s[i-1]>>30) + uint32(i)
	}
	i, j := 1, 0
	step := func() {
		if i++; i == n {
			s[0], i = s[n-1], 1
		}
	}
	for range max(n, len(key)) {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1664525) + key[j] + uint32(j)
		step()
		j = (j + 1) % len(key)
	}
	for range n - 1 {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1566083941) - uint32(i)
		step()
	}
	s[0] = 1 << 31
	m.next = n
	return &m
}

// Float64 is random(): 53 bits, from two numbers of 32.
func (m *mt19937) Float64() float64 {
	a, b := m.uint32()>>5, m.uint32()>>6
	return (float64(a)*(1<<26) + float64(b)) / (1 << 53)
}

func (m *mt19937) uint32() uint32 {
	if m.next == len(m.state) {
		m.twist()
	}
	y := m.state[m.next]
	m.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

func (m *mt19937) twist() {
	s, n := &m.state, len(m.state)
	for k := range n {
		y := s[k]&(1<<31) | s[(k+1)%n]&(1<<31-1)
		v := s[(k+397)%n] ^ y>>1
		if y&1 != 0 {
			v ^= 0x9908b0df
		}
		s[k] = v
	}
	m.next = 0
}
