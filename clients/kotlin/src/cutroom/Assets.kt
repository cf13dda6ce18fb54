package cutroom

import java.io.File
import java.io.IOException
import java.io.RandomAccessFile
import java.security.MessageDigest
import java.util.Locale
import java.util.concurrent.ExecutionException
import java.util.concurrent.Executors
import java.util.concurrent.atomic.AtomicBoolean
import org.json.JSONObject

/** Uploads by reference: hashed on the device, then sent straight to the object store, large files in parts. */
class Assets internal constructor(private val cutroom: Cutroom) {
    /** The file name extensions that can be uploaded. */
    val extensions: Set<String> get() = Contract.types.keys

    /** The files that the user has uploaded. [cursor] is the `nextCursor` of the page before. */
    fun list(limit: Int = 20, cursor: String? = null): AssetList = cutroom.send("GET", "/assets" + page(limit, cursor)).read(AssetList::of)

    /**
     * Uploads a file, unless the server has it, and returns its asset key. A repeated call continues an interrupted
     * upload in parts, even in another process. [progress] receives how much has been sent, from 0 to 1, on any
     * thread. Throws a CutroomError with the field `ext` if the name's extension is none of [extensions], and an
     * IOException if the file cannot be read.
     */
    fun upload(file: File, name: String = file.name, progress: (Double) -> Unit = {}): String {
        val ext = name.substringAfterLast('.', "").lowercase(Locale.ROOT)
        val type = Contract.types[ext]
            ?: throw CutroomError(400, JSONObject().put("error", "ext must be one of $extensions").put("field", "ext"))
        val (hash, size) = digest(file)
        val body = AssetUploadUrlRequest(hash, size, ext, type, multipart = size > Contract.PARTS_ABOVE_BYTES).json().toString()
        var attempt = 1
        while (true) {
            val slot = cutroom.send("POST", "/assets/upload-url", body).read(AssetUploadUrlResponse::of)
            val sent = Sent(size, progress)
            try {
                if (slot.uploadUrl != null) {
                    put(slot.uploadUrl, file, 0, size, type, AtomicBoolean()) { sent.add(it) }
                } else if (!slot.alreadyExists) {
                    putParts(file, slot, sent)
                }
                progress(1.0)
                return slot.assetKey
            } catch (e: IOException) {
                if (Thread.interrupted()) throw InterruptedException()
                if (attempt == Contract.UPLOAD_TRIES) throw CutroomError(0, JSONObject(), cause = e)
            } catch (e: CutroomError) {
                if (attempt == Contract.UPLOAD_TRIES || e.next != Next.AGAIN) throw e
            }
            // The next answer says which parts have arrived, with fresh addresses.
            Thread.sleep(500L shl attempt)
            attempt++
        }
    }

    private fun putParts(file: File, slot: AssetUploadUrlResponse, sent: Sent) {
        val (done, waiting) = slot.parts.orEmpty().partition { it.done }
        sent.add(done.sumOf { it.sizeBytes })
        // A part that fails ends the others: the next try would send them a second time.
        val stop = AtomicBoolean()
        val senders = Executors.newFixedThreadPool(Contract.PARALLEL_PARTS)
        try {
            val all = waiting.map { part ->
                senders.submit {
                    if (stop.get()) return@submit
                    try {
                        val from = (part.partNumber - 1) * (slot.partSizeBytes ?: 0)
                        put(part.url, file, from, part.sizeBytes, null, stop) { sent.add(it) }
                    } catch (e: Throwable) {
                        stop.set(true)
                        throw e
                    }
                }
            }
            all.forEach { it.get() }
        } catch (e: ExecutionException) {
            throw e.cause ?: e
        } finally {
            stop.set(true)
            senders.shutdownNow()
        }
        cutroom.call("POST", "/assets/complete", JSONObject().put("uploadId", slot.uploadId))
    }

    /** One PUT, without the access token. */
    private fun put(url: String, file: File, from: Long, size: Long, type: String?, stop: AtomicBoolean, sent: (Long) -> Unit) {
        val body = Body(size) { out ->
            RandomAccessFile(file, "r").use { source ->
                source.seek(from)
                val piece = ByteArray(PIECE)
                var left = size
                while (left > 0) {
                    if (stop.get() || Thread.currentThread().isInterrupted) throw IOException("the upload was stopped")
                    val n = source.read(piece, 0, minOf(left, piece.size.toLong()).toInt())
                    if (n < 0) throw IOException("$file has become shorter")
                    out.write(piece, 0, n)
                    left -= n
                    sent(n.toLong())
                }
            }
        }
        cutroom.transport.send(Request("PUT", url, if (type == null) emptyMap() else mapOf("Content-Type" to type), body)).use {
            if (it.status != 200) throw IOException("the object store did not take the upload")
        }
    }

    /** The hash and the size of a file, which is read in pieces. */
    private fun digest(file: File): Pair<String, Long> {
        val hash = MessageDigest.getInstance("SHA-256")
        var size = 0L
        file.inputStream().use { source ->
            val piece = ByteArray(PIECE)
            while (true) {
                val n = source.read(piece)
                if (n < 0) break
                hash.update(piece, 0, n)
                size += n
                if (Thread.interrupted()) throw InterruptedException()
            }
        }
        return Pair(hash.digest().joinToString("") { "%02x".format(Locale.ROOT, it) }, size)
    }

    /** Counts the bytes that the senders have sent. */
    private class Sent(private val size: Long, private val progress: (Double) -> Unit) {
        private var bytes = 0L

        @Synchronized fun add(n: Long) {
            bytes += n
            if (size > 0) progress(bytes.toDouble() / size)
        }
    }

    private companion object {
        /** How much of a file each sender has in memory, in bytes. */
        const val PIECE = 1 shl 16
    }
}
