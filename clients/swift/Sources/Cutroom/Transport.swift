import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

/// Receives how many bytes of a request's body have been sent.
public typealias Sent = @Sendable (Int64) -> Void

/// Sends one request, once. It throws if there is no answer, and when its task is cancelled.
public protocol Transport: Sendable {
    /// `URLRequest.timeoutInterval` is how long a connection may go without moving a byte.
    func data(for request: URLRequest, sent: Sent?) async throws -> (Data, HTTPURLResponse)
    /// Sends a file as the body.
    func upload(_ file: URL, for request: URLRequest, sent: Sent?) async throws -> (Data, HTTPURLResponse)
    /// Leaves the answer in a file, which the caller moves or removes.
    func download(for request: URLRequest) async throws -> (URL, HTTPURLResponse)
}

/// A `URLSession` without cache and cookies.
public final class URLSessionTransport: Transport {
    private let session: URLSession
    private let tasks = Tasks()

    public init() {
        let configuration = URLSessionConfiguration.ephemeral
        // A cache would answer a 304 itself.
        configuration.urlCache = nil
        configuration.requestCachePolicy = .reloadIgnoringLocalCacheData
        configuration.httpCookieStorage = nil
        session = URLSession(configuration: configuration, delegate: tasks, delegateQueue: nil)
    }

    deinit { session.finishTasksAndInvalidate() }

    public func data(for request: URLRequest, sent: Sent?) async throws -> (Data, HTTPURLResponse) {
        var bare = request
        bare.httpBody = nil
        let task = request.httpBody.map { session.uploadTask(with: bare, from: $0) } ?? session.dataTask(with: request)
        let end = try await tasks.run(task, sent)
        return (end.data, end.response)
    }

    public func upload(_ file: URL, for request: URLRequest, sent: Sent?) async throws -> (Data, HTTPURLResponse) {
        let end = try await tasks.run(session.uploadTask(with: request, fromFile: file), sent)
        return (end.data, end.response)
    }

    public func download(for request: URLRequest) async throws -> (URL, HTTPURLResponse) {
        let end = try await tasks.run(session.downloadTask(with: request), nil)
        guard let file = end.file else { throw URLError(.cannotCreateFile) }
        return (file, end.response)
    }
}

/// The tasks of one session, and the delegate that receives their events.
private final class Tasks: NSObject, URLSessionDataDelegate, URLSessionDownloadDelegate, @unchecked Sendable {
    struct End: Sendable {
        let data: Data
        let file: URL?
        let response: HTTPURLResponse
    }

    private struct Open {
        let done: CheckedContinuation<End, any Error>
        let sent: Sent?
        var data = Data()
        var file: URL?
    }

    private var open: [Int: Open] = [:]
    private let lock = NSLock()

    func run(_ task: URLSessionTask, _ sent: Sent?) async throws -> End {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { done in
                with { $0[task.taskIdentifier] = Open(done: done, sent: sent) }
                task.resume()
                if Task.isCancelled { end(task) } // the handler may have run before there was a task to end
            }
        } onCancel: {
            // On another thread: on Linux, `cancel` waits for the session's queue, which may be waiting for this
            // handler because it ends the same task at this moment.
            DispatchQueue.global().async { self.end(task) }
        }
    }

    /// Ends a task for its caller at once: on Linux, not every cancelled task reports its end.
    private func end(_ task: URLSessionTask) {
        task.cancel()
        with { $0.removeValue(forKey: task.taskIdentifier) }?.done.resume(throwing: CancellationError())
    }

    private func with<T>(_ body: (inout [Int: Open]) -> T) -> T {
        lock.lock()
        defer { lock.unlock() }
        return body(&open)
    }

    func urlSession(
        _ session: URLSession, task: URLSessionTask, didSendBodyData bytesSent: Int64, totalBytesSent: Int64,
        totalBytesExpectedToSend: Int64
    ) {
        with { $0[task.taskIdentifier]?.sent }?(totalBytesSent)
    }

    /// Keeps the access token from the object store, which refuses it.
    func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest, completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
        var request = request
        request.setValue(nil, forHTTPHeaderField: "Authorization")
        completionHandler(request)
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        with { $0[dataTask.taskIdentifier]?.data.append(data) }
    }

    /// The file is removed as soon as this returns.
    func urlSession(_ session: URLSession, downloadTask: URLSessionDownloadTask, didFinishDownloadingTo location: URL) {
        let kept = FileManager.default.temporaryDirectory.appendingPathComponent("cutroom-" + UUID().uuidString)
        guard (try? FileManager.default.moveItem(at: location, to: kept)) != nil else { return }
        let wanted = with { open in
            open[downloadTask.taskIdentifier]?.file = kept
            return open[downloadTask.taskIdentifier] != nil
        }
        if !wanted { try? FileManager.default.removeItem(at: kept) }
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        guard let ended = with({ $0.removeValue(forKey: task.taskIdentifier) }) else { return }
        guard error == nil, let response = task.response as? HTTPURLResponse else {
            if let file = ended.file { try? FileManager.default.removeItem(at: file) }
            return ended.done.resume(throwing: error ?? URLError(.badServerResponse))
        }
        ended.done.resume(returning: End(data: ended.data, file: ended.file, response: response))
    }
}
