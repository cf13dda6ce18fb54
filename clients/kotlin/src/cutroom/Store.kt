package cutroom

import java.io.File
import java.io.FileOutputStream
import java.io.IOException
import java.net.URLEncoder

/**
 * Where the client keeps what must survive the app: the session, submits without an answer, purchases. Keep it where
 * other apps cannot read it: it has the access token. Calls may come from several threads.
 */
interface Store {
    fun get(key: String): String?

    /** Keeps a value, or removes it if it is null. Returns once the change would survive the end of the process. */
    fun put(key: String, value: String?)
}

/** A store in memory, which ends with the process. */
class MemoryStore : Store {
    private val values = HashMap<String, String>()

    override fun get(key: String): String? = synchronized(values) { values[key] }

    override fun put(key: String, value: String?): Unit = synchronized(values) {
        if (value == null) values.remove(key) else values[key] = value
    }
}

/** A folder with one file for each key. On Android: `FileStore(File(context.noBackupFilesDir, "cutroom"))`. */
class FileStore(private val folder: File) : Store {
    override fun get(key: String): String? = synchronized(this) {
        file(key).let { if (it.exists()) it.readText() else null }
    }

    override fun put(key: String, value: String?): Unit = synchronized(this) {
        val file = file(key)
        if (value == null) {
            if (!file.delete() && file.exists()) throw IOException("cannot delete $file")
            return
        }
        folder.mkdirs()
        // A process that ends here leaves the old value.
        val fresh = File(folder, file.name + ".new")
        FileOutputStream(fresh).use {
            it.write(value.toByteArray())
            it.fd.sync()
        }
        if (!fresh.renameTo(file)) throw IOException("cannot write $file")
    }

    /** The names of keys are safe as names of files, but those of an app's slots may have any character. */
    private fun file(key: String) = File(folder, URLEncoder.encode(key, "UTF-8"))
}
