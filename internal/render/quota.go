package render

import "cutroom/internal/quota"

// open is the condition of an index, word for word: SQLite recognises it by its text.
const open = `state IN ('PENDING', 'PROCESSING')`

// Counts are what renders count against an account's limits: waiting jobs, and the bytes of
// cached inputs, films and the uploads of jobs that have not ended.
var Counts = quota.Counts{
	Waiting: []string{`(SELECT COUNT(*) FROM render_jobs WHERE user_id = $1 AND ` + open + ` AND state = 'PENDING')`},
	Stored: []string{
		quota.Bytes("upload_bytes", `render_jobs WHERE user_id = $1 AND `+open),
		quota.Bytes("output_size_bytes", `render_jobs WHERE user_id = $1 AND output_key IS NOT NULL`),
		quota.Bytes("size_bytes", `render_inputs WHERE user_id = $1`),
	},
}
