package job

import "cutroom/internal/quota"

// What jobs count against the limits of the account $1: how many wait, and the bytes of their files.
var (
	WaitingJobs = `(SELECT COUNT(*) FROM jobs WHERE user_id = $1 AND ` + Waiting + `)`
	StoredBytes = quota.Bytes("stored_bytes", `jobs WHERE user_id = $1 AND stored_bytes > 0`)
)
