package verify

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// A server may answer the beginning of a prompt from a cache, if it has read
// it before. So each request to a server that this project doesn't know has a
// salt at the very beginning of its prompt, drawn from the run's seed and the
// request's id: whoever has the file draws it again.

// SaltIDs is how many tokens of a prompt of ids a salt replaces, at most.
const SaltIDs = 8

const saltWords = 6

// saltVocabulary has 64 words, so that a word takes 6 bits. Most tokenizers
// have one token for each.
var saltVocabulary = strings.Fields(`
	able acid army away back ball bank base bear blue boat body book born
	call card case city club cold cook cost dark data deal deep door down
	east edge face fact farm fire fish food foot form free game girl gold
	good hand head high hill home hope hour idea iron jury king lady lake
	land life line list lord main mark mind`)

// saltDraw gives 32 bytes that belong to a seed and a request's id.
func saltDraw(seed int64, request string) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "salt %d %s", seed, request))
}

// Draws is how many salts a request may have: the first that makes a prompt
// which no request before it had. Two of the shortest prompts are easily the
// same.
const Draws = 32

// Draw names one of a request's draws, from 0, in place of its id.
func Draw(request string, draw int) string {
	if draw == 0 {
		return request
	}
	return fmt.Sprintf("%s redrawn %d", request, draw)
}

// SentSum is the hash of a prompt as it was sent: as ids or a text of its own,
// or else as the corpus has it.
func SentSum(prompt *Prompt, text string, ids []int32) [sha256.Size]byte {
	if text == "" && ids == nil {
		text, ids = prompt.Text, prompt.IDs
	}
	return sha256.Sum256(fmt.Appendf(nil, "%d %s", ids, text))
}

// SaltText returns the words that stand before a request's prompt.
func SaltText(seed int64, request string) string {
	draw := saltDraw(seed, request)
	words := make([]string, saltWords)
	for i := range words {
		words[i] = saltVocabulary[int(draw[i])%len(saltVocabulary)]
	}
	return strings.Join(words, " ")
}

// SaltedText returns text with a request's salt in place of its first words,
// so that it has about as many tokens as before.
func SaltedText(seed int64, request, text string) string {
	words := strings.Fields(text)
	return strings.Join(append([]string{SaltText(seed, request)}, words[min(saltWords, len(words)):]...), " ")
}

// SaltedIDs returns ids with the first of them, at most eight, replaced by
// others from pool, which must be sorted and not empty.
func SaltedIDs(seed int64, request string, ids, pool []int32) []int32 {
	draw := saltDraw(seed, request)
	out := slices.Clone(ids)
	for i := range min(SaltIDs, len(out)) {
		out[i] = pool[binary.BigEndian.Uint32(draw[4*i:])%uint32(len(pool))]
	}
	return out
}

// Pool returns every id that a corpus's prompts have, sorted: ids that the
// model of the corpus surely knows.
func (c *Corpus) Pool() []int32 {
	var pool []int32
	for i := range c.Prompts {
		pool = append(pool, c.Prompts[i].IDs...)
	}
	slices.Sort(pool)
	return slices.Compact(pool)
}

// RequestID names the i-th request of a pass, or of the warmup.
func RequestID(config int, phase string, pass, i int) string {
	if phase == PhaseWarmup {
		return fmt.Sprintf("%d.w.%d", config, i)
	}
	return fmt.Sprintf("%d.%d.%d", config, pass, i)
}
