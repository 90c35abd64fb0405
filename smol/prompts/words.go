package main

import (
	"math/rand/v2"
	"strings"
)

// The words that texts are made of: frequent ones, each a single token in most
// vocabularies, in ASCII and lower case.
var (
	adjectives = strings.Fields(`old new big small quiet early late long short warm cold dark light deep high low open
		young strong weak clear heavy empty full hard soft dry wet fast slow rich poor wild calm bright clean
		common local public private simple rare real final first second third white black red green blue brown
		gray golden silver wooden stone northern southern eastern western main minor major fresh sweet bitter
		plain narrow wide broken round square flat sharp thin thick loud busy lucky happy brave gentle honest
		famous ancient modern foreign central daily random steady careful`)
	plurals = strings.Fields(`rivers houses trees birds cars boats trains roads fields hills clouds stars books letters
		songs stories doctors teachers students farmers sailors soldiers workers writers painters children women
		men friends neighbors visitors guests judges kings queens horses dogs cats sheep cows fish bees flowers
		apples stones bridges towers walls gates doors windows rooms kitchens gardens markets shops schools
		hospitals churches offices factories machines engines tools wheels lamps clocks maps papers pictures
		films games dances storms winds waves lakes islands valleys forests deserts villages cities towns
		streets banks ships planes buses servers networks signals numbers models tables lists plans rules`)
	nouns = strings.Fields(`river house tree bird car boat train road field hill cloud star book letter song story
		doctor teacher student farmer sailor soldier worker writer painter child woman man friend neighbor
		visitor guest judge king queen horse dog cat flower apple stone bridge tower wall gate door window room
		kitchen garden market shop school hospital church office factory machine engine tool wheel lamp clock
		map paper picture film game dance storm wind wave lake island valley forest desert village city town
		street bank ship plane bus server network signal number model table list plan rule morning evening
		night winter summer spring harbor station library museum`)
	verbs = strings.Fields(`crossed followed found left moved opened passed reached saw kept held carried brought
		made built watched heard knew remembered forgot loved feared needed wanted used changed covered filled
		entered joined served led met sold bought lost won painted cleaned fixed closed counted measured tested
		checked marked drew described explained`)
	adverbs = strings.Fields(`slowly quickly often again later once now then here there still always never soon
		today yesterday suddenly finally together alone clearly nearly almost perhaps maybe indeed`)
	prepositions = strings.Fields(`near behind before after above below under over with without beside between
		across along around against through beyond inside outside`)
)

// prose makes sentences. What it makes depends on the generator alone.
type prose struct {
	random *rand.Rand
	queue  []string // pieces of the sentence under way
}

func (p *prose) draw(words []string) string { return words[p.random.IntN(len(words))] }

// next returns the next piece: a word with the blank before it, or a mark.
func (p *prose) next() string {
	if len(p.queue) == 0 {
		p.open(p.draw(openers))
		p.queue[0] = " " + p.queue[0]
	}
	piece := p.queue[0]
	p.queue = p.queue[1:]
	return piece
}

// openers are the words that a sentence may begin with.
var openers = append(append(append([]string(nil), adjectives...), plurals...), adverbs...)

// kinds maps an opener to what kind of word it is.
var kinds = func() map[string]byte {
	m := map[string]byte{}
	for _, w := range adverbs {
		m[w] = 'v'
	}
	for _, w := range plurals {
		m[w] = 'p'
	}
	for _, w := range adjectives {
		m[w] = 'a'
	}
	return m
}()

// open begins a sentence with a word, in place of what was under way. The
// first piece has no blank before it.
func (p *prose) open(opener string) {
	s := []string{strings.ToUpper(opener[:1]) + opener[1:]}
	add := func(words ...string) {
		for _, w := range words {
			s = append(s, " "+w)
		}
	}
	switch kinds[opener] {
	case 'v':
		s = append(s, ",")
		add(p.draw(adjectives), p.draw(plurals))
	case 'a':
		add(p.draw(plurals))
	}
	add(p.draw(verbs), "the", p.draw(adjectives), p.draw(nouns))
	for range 1 + p.random.IntN(3) {
		add(p.draw(prepositions), "the")
		if p.random.IntN(2) == 0 {
			add(p.draw(adjectives))
		}
		add(p.draw(nouns))
	}
	if p.random.IntN(3) == 0 {
		s = append(s, ",")
		add("and", p.draw(plurals), p.draw(verbs), "the", p.draw(nouns))
	}
	if p.random.IntN(3) == 0 {
		add(p.draw(adverbs))
	}
	p.queue = append(s, ".")
}
