package separation

import "cutroom/internal/quota"

// kept is the condition of an index, word for word: SQLite recognises it by its text.
const kept = `state IN ('QUEUED', 'SUBMITTING', 'PROCESSING', 'READY')`

// Counts are what separations take of an account's limits: jobs that wait, stems, also as WAV,
// and the recordings of jobs that have not ended.
var Counts = quota.Counts{
	Waiting: []string{`(SELECT COUNT(*) FROM separation_jobs WHERE user_id = $1 AND ` + kept + ` AND state = 'QUEUED')`},
	Stored: []string{
		quota.Bytes("source_size_bytes", `separation_jobs WHERE user_id = $1 AND `+kept+` AND state <> 'READY'`),
		quota.Bytes("size_bytes + wav_size_bytes", `separation_stems WHERE job_id IN
			(SELECT id FROM separation_jobs WHERE user_id = $1 AND `+kept+` AND state = 'READY')`),
	},
}
