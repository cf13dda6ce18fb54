package fault

// Reason says in one word why a job failed, for clients to branch on and to translate. The API promises that this list
// is complete: the OpenAPI document has the same words.
type Reason string

// The reasons. A failure without a reason of its own is Unexplained.
const (
	SourceMissing       Reason = "source_missing"       // gone before it was read
	SourceUnreadable    Reason = "source_unreadable"    // damaged or undecodable, or refused without a more specific reason
	SourceProtected     Reason = "source_protected"     // encrypted
	SourceTooLarge      Reason = "source_too_large"     // larger than one job may be: pixels, memory, work
	NoMedia             Reason = "no_media"             // nothing to see or hear where that is needed
	TimedOut            Reason = "timed_out"            // a deadline passed
	ProviderQuota       Reason = "provider_quota"       // the provider's 402
	ProviderRejected    Reason = "provider_rejected"    // its 401, 403, other 4xx, or a job that it failed
	ProviderUnavailable Reason = "provider_unavailable" // its 5xx, 429, time-out or broken connection
	PriceMismatch       Reason = "price_mismatch"       // the provider measured more than was paid
	Stale               Reason = "stale"                // waited too long in the queue
	Interrupted         Reason = "interrupted"          // attempts used up by interruptions
	Unexplained         Reason = "internal"             // anything else
)

// Failedf returns the failure of a job, with a sentence for its owner.
func Failedf(reason Reason, format string, args ...any) *Error {
	e := Invalidf(format, args...)
	e.Reason = reason
	return e
}
