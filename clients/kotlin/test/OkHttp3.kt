// Gives OkHttp 3.13, which Debian has, the names of OkHttp 4 and 5.

val okhttp3.Response.code get() = code()
val okhttp3.Response.headers get() = headers()
val okhttp3.Response.body get() = body()
