package dispatch

import "strconv"

// Answers gathers what a broker says of the entries of one request, which were named by their position (see [Name]).
type Answers []*Failure

// Name of the entry at position i in a request.
func Name(i int) string { return strconv.Itoa(i) }

// NewAnswers expects answers for n entries. missing is the failure of one that gets none.
func NewAnswers(n int, missing error) Answers {
	a := make(Answers, n)
	for i := range a {
		a[i] = &Failure{Err: missing}
	}
	return a
}

// Set notes the answer for the entry of this name: nil is accepted. Names that were not given are passed over.
func (a Answers) Set(name string, f *Failure) {
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(a) {
		a[i] = f
	}
}
