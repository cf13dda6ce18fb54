package cutroom

import org.json.JSONObject

/** An unsuccessful answer, or no answer at all (status 0). [Contract] has the codes with their next step. */
class CutroomError internal constructor(
    val status: Int,
    body: JSONObject,
    /** Seconds after which the same request may succeed. */
    val retryAfterSec: Double? = null,
    /** The id by which support finds the request. */
    val requestId: String? = null,
    cause: Throwable? = null,
) : Exception(
    body.text("error") ?: if (status == 0) "the server does not answer" else "the server answered $status",
    cause,
) {
    /** The machine code, or an English sentence where the API has no code. */
    val code: String = body.text("error") ?: ""
    val detail: String? = body.text("detail")
    /** The path of the field that a sentence is about, such as `segments[1].speedScale`. */
    val field: String? = body.text("field")
    /** The credits that `insufficient_credits` requires, and those that the account has. */
    val required: Long? = body.number("required")
    val balance: Long? = body.number("balance")
    val next: Next = Contract.next[code] ?: when {
        status == 401 -> Next.SIGN_IN
        status == 404 && field?.endsWith("AssetKey", ignoreCase = true) == true -> Next.UPLOAD_AGAIN
        status == 0 || status == 429 || status >= 500 -> Next.AGAIN
        else -> Next.FIX
    }
}

/** The answer to a request of a user who is no longer signed in. */
internal fun signedOut() = CutroomError(401, JSONObject().put("error", "unauthorized"))

/** A job that ended in FAILED. The credits of a separation have been refunded. */
class JobFailed(
    val jobId: String,
    /** One of [JobErrorCode]; `internal` if the server gave none. */
    val code: String,
    sentence: String,
    /** The path of the field to blame, such as `segments[1].sourceAssetKey`, if the server knows one. */
    val field: String?,
) : Exception(sentence)

internal fun JSONObject.text(key: String): String? = if (has(key) && !isNull(key)) optString(key) else null

internal fun JSONObject.number(key: String): Long? = if (has(key) && !isNull(key)) optLong(key) else null
