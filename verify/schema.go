package verify

import "fmt"

// Schema names this version of the evidence. A changed meaning or unit gets a
// new number; files of an older number stay readable or are refused by name.
const Schema = "servebench/1"

// The kinds of records, in the order in which a file may hold them: one
// header, one corpus, then for each server its server record followed by its
// configurations, then one trailer. What a client can do stands before the
// configurations that it is about.
const (
	KindHeader        = "header"
	KindCorpus        = "corpus"
	KindServer        = "server"
	KindClient        = "client"        // what the measuring process can do, by a null server
	KindPlan          = "plan"          // opens a configuration
	KindRequest       = "request"       // one finished request, as its client saw it
	KindServed        = "served"        // the same request, as the server saw it
	KindMemory        = "memory"        // samples of the server's resident set
	KindConfiguration = "configuration" // closes a configuration; one printed line, unless it is a probe
	KindSaturation    = "saturation"    // closes a search over the configurations before it; one printed line
	KindTrailer       = "trailer"
)

// Phases of a request. Only measured ones enter a metric.
const (
	PhaseWarmup   = "warmup"
	PhaseSettle   = "settle" // of an open loop, before its steady state
	PhaseMeasured = "measured"
)

// Unmeasured is what a field holds that names a quantity nobody measured. It
// is never 0.
const Unmeasured = "unmeasured"

// Header opens a file: who ran what, on which machine, from which code.
type Header struct {
	Kind    string `json:"kind"`
	Schema  string `json:"schema"`
	Run     string `json:"run"`     // unique to the process
	Started string `json:"started"` // wall time, RFC 3339 with ns, UTC; the only wall time but the trailer's
	Clock   Clock  `json:"clock"`

	Revision  string   `json:"revision"`             // git commit of the working tree, "" if there is none
	CleanTree bool     `json:"clean_tree"`           // git status had nothing to say
	Go        string   `json:"go"`                   // runtime.Version of the measuring process
	Modules   []Module `json:"modules"`              // as linked into the measuring process
	Flags     []Flag   `json:"flags"`                // every flag and its value, set or default
	HourlyUSD float64  `json:"hourly_usd"`           // an assumption; 0 where none was made
	Energy    string   `json:"energy"`               // "unmeasured"
	Host      Host     `json:"host"`                 //
	Warnings  []string `json:"warnings"`             // doubts known before the first request
	Target    *Target  `json:"target,omitempty"`     // a server that this process did not start
	OrderSeed int64    `json:"order_seed,omitempty"` // configurations are in a random order, see CompareOrder; 0: in that of the axes
}

// Clock says how the stamps of a file are to be read: ns since a base that
// lies before the first of them.
type Clock struct {
	Name    string `json:"name"`     // "CLOCK_MONOTONIC", "CLOCK_UPTIME_RAW" (macOS), or "process" where no other process can read it
	BaseNS  int64  `json:"base_ns"`  // the named clock at stamp 0; 0 for "process"
	ErrorNS int64  `json:"error_ns"` // BaseNS is known to within this
}

// Module is one Go module as read back from the binary's build information.
type Module struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	Sum     string `json:"sum"`
}

// Flag is one flag of the test binary or of the benchmark.
type Flag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Set   bool   `json:"set"` // by the user, not a default
}

// Host is the machine of the measuring process (and of a server that it
// started). Fields that the system doesn't tell are empty or 0.
type Host struct {
	OS             string    `json:"os"`
	Arch           string    `json:"arch"`
	Kernel         string    `json:"kernel"`
	CPU            string    `json:"cpu"`              // model name
	CPUs           int       `json:"cpus"`             // online
	AllowedCPUs    int       `json:"allowed_cpus"`     // in the process's affinity mask
	Governor       string    `json:"governor"`         // scaling_governor of the first allowed CPU
	CgroupCPUMax   string    `json:"cgroup_cpu_max"`   // cgroup v2 cpu.max
	CgroupMemBytes int64     `json:"cgroup_mem_bytes"` // cgroup v2 memory.max, 0 for none
	MemTotalBytes  int64     `json:"mem_total_bytes"`  //
	MemFreeBytes   int64     `json:"mem_free_bytes"`   // MemAvailable at the start
	Load           []float64 `json:"load"`             // 1, 5, 15 minutes at the start
	MachineLock    bool      `json:"machine_lock"`     // this run held the machine-wide lock
}

// Target is a server named by its URL instead of started here, and how it was
// asked.
type Target struct {
	URL     string `json:"url"` // without user information
	API     string `json:"api"` // "completions" or "chat"
	Model   string `json:"model"`
	Proxied bool   `json:"proxied"`

	Software string   `json:"software,omitempty"`  // Server header of its answers
	Reuse    bool     `json:"reuse,omitempty"`     // connections serve one request after the other
	Insecure bool     `json:"insecure,omitempty"`  // certificates weren't checked
	KeyFrom  string   `json:"key_from,omitempty"`  // environment variable with the API key; the key is never recorded
	Headers  []string `json:"headers,omitempty"`   // names of headers that the user added, without their values
	Fields   []Field  `json:"fields,omitempty"`    // of every request's body, from the user
	Optional []string `json:"optional,omitempty"`  // fields not every server knows, that this one took and each request has
	Prompts  string   `json:"prompts,omitempty"`   // how their length is known, one of the Prompts constants
	SaltSeed int64    `json:"salt_seed,omitempty"` // of the salt at the beginning of every prompt, 0 for none
	Repeats  bool     `json:"repeats,omitempty"`   // the user said that a prompt may be sent again
}

// Field is a member of a request's body.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"` // JSON; null leaves the field out
}

// How the length of a prompt to a Target is known. The server's own count,
// usage.prompt_tokens, must agree in each request, but for PromptsInexact.
const (
	PromptsIDs      = "ids"      // it is sent as ids
	PromptsTokenize = "tokenize" // its text was made to measure with the server's /tokenize
	PromptsFile     = "file"     // the user's file says so
	PromptsInexact  = "inexact"  // it isn't; the axis says "about"
)

// About begins the value of an input axis that isn't exact.
const About = "about"

// Corpus is the set of prompts of a file, each under its id. SHA256 is of the
// corpus file: every prompt's canonical JSON with a newline after it.
type Corpus struct {
	Kind    string   `json:"kind"`
	Name    string   `json:"name"`
	Bytes   int64    `json:"bytes"`
	SHA256  string   `json:"sha256"`
	Prompts []Prompt `json:"prompts"`
}

// Prompt is one line of a corpus file. IDs are the model's own for Text,
// nothing added; its length is the input axis.
type Prompt struct {
	ID     string  `json:"id"`
	Input  int     `json:"input"` // len(IDs)
	Warmup bool    `json:"warmup"`
	Text   string  `json:"text"`
	IDs    []int32 `json:"ids"`
	SHA256 string  `json:"sha256"` // of Text's bytes
}

// Server is one server process, as it said of itself when it became ready.
// For a Target most of it is empty.
type Server struct {
	Kind         string    `json:"kind"`
	Server       int       `json:"server"` // counts from 1 in the file
	ReadyNS      int64     `json:"ready_ns"`
	PID          int       `json:"pid"`
	Binary       File      `json:"binary"`
	Go           string    `json:"go"`
	Libraries    []Library `json:"libraries"` // versions as the libraries report them
	IntraThreads int       `json:"intra_threads"`
	InterThreads int       `json:"inter_threads"`
	Spinning     bool      `json:"spinning"`
	HugePages    string    `json:"huge_pages"` // what the kernel did at the server's wish, "" for nothing
	Slots        int       `json:"slots"`
	ContextLimit int       `json:"context_limit"`  // tokens, prompt and answer together
	LoadNS       int64     `json:"load_ns"`        // from process start to ready
	ClockErrorNS int64     `json:"clock_error_ns"` // its stamps are on CLOCK_MONOTONIC to within this
	Model        Model     `json:"model"`
}

// Library is a native library with the version that it reports at run time.
type Library struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	File    File   `json:"file"`
}

// Model is what answers: where it came from and every file that was loaded.
type Model struct {
	ID         string `json:"id"`
	Source     string `json:"source"`   // a public name: a model page, a package and version
	Revision   string `json:"revision"` // the source's own, "" if it has none
	Precision  string `json:"precision"`
	Parameters int64  `json:"parameters"`
	Vocabulary int    `json:"vocabulary"`
	Files      []File `json:"files"`
	Inputs     []File `json:"inputs"` // what the files were made from, as the source has it
}

// Describe names a model in one line, as the configuration line "model" of a
// benchmark's output has it. It stays the same between runs worth comparing.
func (m *Model) Describe() string {
	weights := File{} // the largest file
	for _, f := range m.Files {
		if f.Bytes > weights.Bytes {
			weights = f
		}
	}
	return fmt.Sprintf("%s, %s, sha256 %.16s", m.ID, m.Precision, weights.SHA256)
}

// File is a file by content. Name is a base name, never a path.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // 64 hexadecimal digits, lower case
}

// Plan opens a configuration: what is about to be measured.
type Plan struct {
	Kind         string   `json:"kind"`
	Config       int      `json:"config"` // counts from 1 in the file
	Server       int      `json:"server"`
	Name         string   `json:"name"`       // of the benchmark, without the GOMAXPROCS suffix
	Axes         []Axis   `json:"axes"`       // in the order of the name
	Repetition   int      `json:"repetition"` // of this name and GOMAXPROCS in this file, from 1
	GOMAXPROCS   int      `json:"gomaxprocs"` // of the measuring process
	Load         Load     `json:"load"`       //
	Prompts      []string `json:"prompts"`    // of one pass
	Warmups      []string `json:"warmups"`    // before the first pass
	OutputTokens int      `json:"output_tokens"`
	ExactOutput  bool     `json:"exact_output"` // a shorter answer is a failure
	PlannedNS    int64    `json:"planned_ns"`   // when this record was made

	// For a Target only.
	PerPass   int `json:"per_pass,omitempty"`   // each pass has the next so many of Prompts; 0: each has all of them
	MaxFailed int `json:"max_failed,omitempty"` // measured requests that may fail
	MaxCached int `json:"max_cached,omitempty"` // percent of the prompts' tokens that a cache may answer

	Probe int `json:"probe,omitempty"` // number, from 1, in the search for a saturation that it is a part of; it has no line of its own
}

// Axis is one key=value of a benchmark's name.
type Axis struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Load is how requests arrive. "closed": Conc clients, each sends its next
// request when its last has ended. "open": each is sent when it is due.
type Load struct {
	Kind string `json:"kind"`
	Conc int    `json:"conc"` // 0 in an open loop

	// For an open loop only; see Schedule. Rates are decimal numbers as the
	// axis has them.
	Rate        string  `json:"rate,omitempty"`         // requests a second
	Arrival     string  `json:"arrival,omitempty"`      // one of the Arrival constants
	Burstiness  string  `json:"burstiness,omitempty"`   // shape of gamma distributed gaps
	Seed        int64   `json:"seed,omitempty"`         // of the arrivals
	DurationNS  int64   `json:"duration_ns,omitempty"`  // requests are due for so long
	Requests    int     `json:"requests,omitempty"`     // or until there are so many
	Steps       []Step  `json:"steps,omitempty"`        // in place of Rate and DurationNS
	Trace       []Due   `json:"trace,omitempty"`        // of a recorded trace
	TraceFile   *File   `json:"trace_file,omitempty"`   // that it was read from
	TraceScale  string  `json:"trace_scale,omitempty"`  // factor to the trace's times
	MaxInflight int     `json:"max_inflight,omitempty"` // requests under way at once; those due beyond it wait in the client
	SettleNS    int64   `json:"settle_ns,omitempty"`    // requests due before it are kept, and excluded
	SLO         []Bound `json:"slo,omitempty"`          // what a request has to meet to be good
	MaxLagNS    int64   `json:"max_lag_ns,omitempty"`   // bound of the generator's lag, 99th percentile
	Share       string  `json:"share,omitempty"`        // "1/4": this process is the first of four generators, each with its part of the rate
}

// Step is a rate and how long it holds.
type Step struct {
	Rate       string `json:"rate"`
	DurationNS int64  `json:"duration_ns"`
}

// Due is one request of a trace.
type Due struct {
	DueNS  int64 `json:"due_ns"` // by the trace's own clock, after its first request
	Input  int   `json:"input"`  // tokens
	Output int   `json:"output"` // tokens
}

// Bound is one condition of an SLO.
type Bound struct {
	Metric string `json:"metric"` // "ttft", "tpot" or "e2e"; from due, and not from send
	MostNS int64  `json:"most_ns"`
}

// Kinds of load.
const (
	LoadClosed = "closed"
	LoadOpen   = "open"
)

// Request is one request as its client saw it. All stamps are ns on the
// file's clock; an absent stamp is a moment that never came.
type Request struct {
	Kind         string   `json:"kind"`
	Config       int      `json:"config"`
	ID           string   `json:"id"` // unique in the configuration; sent as X-Request-Id
	Phase        string   `json:"phase"`
	Pass         int      `json:"pass"`   // from 0
	Client       int      `json:"client"` // from 0, below Load.Conc
	Prompt       string   `json:"prompt"` // id in the corpus
	OutputTokens int      `json:"output_tokens"`
	ScheduledNS  int64    `json:"scheduled_ns"`           // due; in closed loop when the client became free
	StartNS      int64    `json:"start_ns"`               // just before the connection is made
	ConnectedNS  int64    `json:"connected_ns,omitempty"` // a connection is there
	SentNS       int64    `json:"sent_ns,omitempty"`      // the request is written
	HeadersNS    int64    `json:"headers_ns,omitempty"`   // first byte of the response
	EventNS      []int64  `json:"event_ns,omitempty"`     // arrival of each event
	EventKinds   string   `json:"event_kinds,omitempty"`  // one EventKind letter for each event
	EventIDs     []int    `json:"event_ids,omitempty"`    // token ids in each event; absent if the server gave none
	PromptIDs    []int32  `json:"prompt_ids,omitempty"`   // as the server returned them
	TokenIDs     []int32  `json:"token_ids,omitempty"`    // as the server returned them
	Text         string   `json:"text,omitempty"`         // the answer, joined
	Reasoning    string   `json:"reasoning,omitempty"`    //
	EndNS        int64    `json:"end_ns"`                 // end of the body, or the failure
	Status       int      `json:"status,omitempty"`       // of HTTP
	Finish       string   `json:"finish,omitempty"`       // finish_reason
	Usage        *Usage   `json:"usage,omitempty"`        //
	Reused       bool     `json:"reused,omitempty"`       // the connection had served a request before
	Failure      *Failure `json:"failure,omitempty"`
	SentIDs      []int32  `json:"sent_ids,omitempty"`    // the prompt as it was sent, where that isn't the corpus's
	SentText     string   `json:"sent_text,omitempty"`   // the same, of text
	AdmittedNS   int64    `json:"admitted_ns,omitempty"` // of an open loop: max_inflight made it wait until then
}

// The kinds of events, one letter each in Request.EventKinds.
const (
	EventContent   = 'c' // carries generated text or ids of the answer
	EventReasoning = 'r' // carries generated reasoning
	EventTool      = 't' // carries a generated tool call
	EventOther     = 'o' // role, finish reason, usage, empty delta: no token
	EventError     = 'e' // an error object
	EventDone      = 'd' // [DONE]
)

// Usage is the server's own count. A nil CachedTokens was not reported.
type Usage struct {
	PromptTokens     int  `json:"prompt_tokens"`
	CompletionTokens int  `json:"completion_tokens"`
	CachedTokens     *int `json:"cached_tokens,omitempty"`
}

// Failure says why a request failed. Classes are the Fail constants.
type Failure struct {
	Class   string `json:"class"`
	Message string `json:"message"`
}

// The classes of failures.
const (
	FailConnect  = "connect"  // no connection
	FailWrite    = "write"    // the request could not be sent
	FailStatus   = "status"   // an HTTP status other than 200
	FailReply    = "reply"    // not an event stream, compressed, not readable
	FailStream   = "stream"   // the stream broke off: reset, truncated, no end
	FailServer   = "server"   // an error object in the stream
	FailStall    = "stall"    // nothing arrived within the idle limit
	FailEmpty    = "empty"    // a proper end, but no token
	FailShort    = "short"    // another number of tokens than asked for
	FailPrompt   = "prompt"   // the prompt's ids or their number differ
	FailUsage    = "usage"    // the server's count contradicts its stream
	FailCanceled = "canceled" // the run was ended from outside
	FailUnsent   = "unsent"   // it was due in an open loop, and given up before it was sent
)

// Served is one request as the server saw it: a line of the server's own
// log, there with Config 0 and stamps on the absolute clock, in the evidence
// with stamps on the file's clock.
type Served struct {
	Kind      string  `json:"kind"`
	Config    int     `json:"config"`
	ID        string  `json:"id"`                   // the client's X-Request-Id, or the server's own
	ArrivalNS int64   `json:"arrival_ns"`           // the handler has the request's head
	QueuedNS  int64   `json:"queued_ns,omitempty"`  // the body is read and tokenized
	SlotNS    int64   `json:"slot_ns,omitempty"`    // the slot is this request's
	ReleaseNS int64   `json:"release_ns,omitempty"` // the slot is free again
	PromptIDs []int32 `json:"prompt_ids,omitempty"`
	TokenIDs  []int32 `json:"token_ids,omitempty"`
	TokenNS   []int64 `json:"token_ns,omitempty"` // the id is known, its event not yet written
	Steps     int     `json:"steps"`              // runs of the model: one prefill, then one a token
	Error     string  `json:"error,omitempty"`
}

// Memory holds samples of a server's resident set during a configuration.
type Memory struct {
	Kind     string  `json:"kind"`
	Config   int     `json:"config"`
	TimeNS   []int64 `json:"time_ns"`
	RSSBytes []int64 `json:"rss_bytes"`
}

// Configuration closes a configuration: what was printed, or why nothing was.
type Configuration struct {
	Kind         string   `json:"kind"`
	Config       int      `json:"config"`
	Passes       int      `json:"passes"`
	Measured     int      `json:"measured"` // requests, failed ones too
	Failed       int      `json:"failed"`   // of the measured
	WarmupFailed int      `json:"warmup_failed"`
	Tokens       int64    `json:"tokens"`      // of measured requests that didn't fail
	BeginNS      int64    `json:"begin_ns"`    // first measured start
	EndNS        int64    `json:"end_ns"`      // last measured end
	LeadNS       int64    `json:"lead_ns"`     // plan to first measured start: the warmup
	Spans        Spans    `json:"spans"`       // of measured requests that didn't fail
	Excluded     Spans    `json:"excluded"`    // of all others: warmups and failed ones, which enter no metric
	Sampled      Sampled  `json:"sampled"`     //
	PeakBytes    int64    `json:"peak_bytes"`  // the kernel's own peak of the server since the plan; 0 where PeakSource is "unmeasured"
	PeakSource   string   `json:"peak_source"` // PeakVmHWM, PeakMaxRSS or Unmeasured
	Metrics      []Metric `json:"metrics"`     // none if invalid
	Valid        bool     `json:"valid"`
	Reasons      []string `json:"reasons"` // why it isn't valid

	// For a Target only: sums of the server's own counts, over measured
	// requests that didn't fail.
	PromptTokens int64 `json:"prompt_tokens,omitempty"`
	CachedTokens int64 `json:"cached_tokens,omitempty"`

	Open   *Open   `json:"open,omitempty"`   // of an open loop: how its plan was kept
	Client *Effort `json:"client,omitempty"` // what the measuring process did, from the first pass to the end of the last
}

// Spans says where the time of some requests went: sums in ns, each over the
// requests that have both of its ends. Divided by the number of requests they
// are means. Every stamp of a request and of its server's log is an end of one
// of them, so that none of them bears on nothing.
type Spans struct {
	Requests   int   `json:"requests"`
	DelayNS    int64 `json:"delay_ns"`    // scheduled to start
	ConnectNS  int64 `json:"connect_ns"`  // start to connected
	SendNS     int64 `json:"send_ns"`     // connected to sent
	HeadersNS  int64 `json:"headers_ns"`  // start to the first byte of the response
	EventsNS   int64 `json:"events_ns"`   // start to each event, over all events
	EndNS      int64 `json:"end_ns"`      // start to end
	Served     int   `json:"served"`      // of the requests, those that the server logged
	ArriveNS   int64 `json:"arrive_ns"`   // start to the server's arrival
	ReadNS     int64 `json:"read_ns"`     // arrival to queued
	QueueNS    int64 `json:"queue_ns"`    // queued to slot
	SlotNS     int64 `json:"slot_ns"`     // slot to release
	Tokens     int64 `json:"tokens"`      // that both witnesses have
	DeliveryNS int64 `json:"delivery_ns"` // token known to the server to its arrival at the client, over those tokens

	WaitNS int64 `json:"wait_ns,omitempty"` // of an open loop: scheduled to admitted
}

// Sampled sums up the samples of the server's resident set.
type Sampled struct {
	Samples  int   `json:"samples"`
	MaxBytes int64 `json:"max_bytes"`
	SumBytes int64 `json:"sum_bytes"` // divided by Samples the mean
	GapNS    int64 `json:"gap_ns"`    // the longest time without a sample, from the plan on
}

// Where a peak comes from.
const (
	PeakVmHWM  = "VmHWM"     // of /proc/PID/status, reset before the configuration
	PeakMaxRSS = "ru_maxrss" // of a process that has ended
)

// Metric is one reported number with its unit as on the benchmark line.
type Metric struct {
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
}

// Trailer closes a file. SHA256 is of every byte before its own line.
type Trailer struct {
	Kind           string `json:"kind"`
	Ended          string `json:"ended"` // wall time
	EndNS          int64  `json:"end_ns"`
	Records        int    `json:"records"` // before this one
	Configurations int    `json:"configurations"`
	Invalid        int    `json:"invalid"` // of them
	Requests       int    `json:"requests"`
	Failed         int    `json:"failed"`
	Tokens         int64  `json:"tokens"`
	SHA256         string `json:"sha256"`
}
