import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

/// Uploads by reference: hashed on the device, then sent straight to the object store, large files in parts that are
/// sent again one by one when a connection breaks.
public final class Assets: Sendable {
    /// The file name extensions that can be uploaded.
    public static let extensions: [String] = Contract.types.keys.sorted()

    /// How much is read at a time to compute the hash, in bytes.
    private static let step = 1 << 22
    private let api: API

    init(_ api: API) { self.api = api }

    /// The files that the user has uploaded.
    public func list(limit: Int = 20, cursor: String? = nil) async throws -> AssetList {
        try await api.send(Call("GET", "/assets", query: page(limit, cursor))).decoded()
    }

    /// Uploads a file, unless the server has it, and returns its asset key. `progress` receives how much has been sent,
    /// from 0 to 1. A repeated call, even after the app was killed, continues an upload in parts. Throws a
    /// `CutroomError` with the field `ext` if the name's extension is none of `extensions`.
    public func upload(file: URL, progress: @escaping @Sendable (Double) -> Void = { _ in }) async throws -> String {
        let (type, size, asked) = try await describe(file, parts: true)
        let body = try encode(asked)
        var attempt = 1
        while true {
            let slot: AssetUploadUrlResponse = try await api.send(Call("POST", "/assets/upload-url", json: body)).decoded()
            do {
                if let url = slot.uploadUrl {
                    try await put(url, .file(file, size), type: type) { progress(Double($0) / Double(max(size, 1))) }
                } else if !slot.alreadyExists {
                    try await putParts(file, size, slot, progress)
                }
                progress(1)
                return slot.assetKey
            } catch let error as CutroomError where attempt < Contract.uploadTries && error.next == .again {
                // The next answer says which parts have arrived, with fresh addresses.
                try await pause(0.5 * Double(1 << attempt))
                attempt += 1
            }
        }
    }

    /// The key of a file, and the request that sends it in a background session, nil if the server has the file. The
    /// request must begin within five minutes. If it fails, ask for another.
    public func prepare(file: URL) async throws -> (key: String, request: URLRequest?) {
        let (type, _, asked) = try await describe(file, parts: false)
        let slot: AssetUploadUrlResponse = try await api.send(Call("POST", "/assets/upload-url", json: encode(asked))).decoded()
        guard let url = slot.uploadUrl.flatMap(URL.init) else { return (slot.assetKey, nil) }
        var request = URLRequest(url: url)
        request.httpMethod = "PUT"
        request.setValue(type, forHTTPHeaderField: "Content-Type")
        return (slot.assetKey, request)
    }

    /// What the server must know about a file before it is sent.
    private func describe(_ file: URL, parts: Bool) async throws -> (type: String, size: Int, asked: AssetUploadUrlRequest) {
        let ext = file.pathExtension.lowercased()
        guard let type = Contract.types[ext] else {
            let sentence = "ext must be one of \(Self.extensions.joined(separator: ", "))"
            throw CutroomError(status: 400, body: ErrorBody(error: sentence, field: "ext"))
        }
        let (hash, size) = try digest(file)
        return (type, size, AssetUploadUrlRequest(
            sha256Hex: hash, sizeBytes: size, ext: ext, contentType: type, multipart: parts && size > Contract.partsAboveBytes))
    }

    private func putParts(
        _ file: URL, _ size: Int, _ slot: AssetUploadUrlResponse, _ progress: @escaping @Sendable (Double) -> Void
    ) async throws {
        let parts = slot.parts ?? []
        let sent = Sum(parts.filter(\.done).map(\.sizeBytes).reduce(0, +), of: size, progress)
        // A part that fails ends the others: the next try would send them a second time.
        try await withThrowingTaskGroup(of: Void.self) { group in
            var waiting = parts.filter { !$0.done }.makeIterator()
            func sendNext() {
                guard let part = waiting.next() else { return }
                let from = (part.partNumber - 1) * (slot.partSizeBytes ?? 0)
                group.addTask {
                    try await self.put(part.url, .data(self.piece(file, from, part.sizeBytes)), type: nil) {
                        sent.set(part.partNumber, Int($0))
                    }
                    sent.set(part.partNumber, part.sizeBytes)
                }
            }
            for _ in 0..<Contract.parallelParts { sendNext() }
            while try await group.next() != nil { sendNext() }
        }
        _ = try await api.send(Call("POST", "/assets/complete", json: encode(["uploadId": slot.uploadId ?? ""])))
    }

    private enum Bytes {
        case data(Data)
        /// A file is not read into memory: a store without uploads in parts takes 500 MB at once.
        case file(URL, Int)
    }

    /// One PUT, without the access token.
    private func put(_ address: String, _ bytes: Bytes, type: String?, sent: @escaping Sent) async throws {
        let refused = CutroomError.noAnswer("the object store did not take the upload")
        guard let url = URL(string: address) else { throw refused }
        var request = URLRequest(url: url)
        request.httpMethod = "PUT"
        if let type { request.setValue(type, forHTTPHeaderField: "Content-Type") }
        do {
            let response: HTTPURLResponse
            // A minute without a byte, or 50 kB a second where the bytes that leave are not counted.
            switch bytes {
            case .data(let data):
                request.httpBody = data
                request.timeoutInterval = 60 + Double(data.count) / 50_000
                (_, response) = try await api.transport.data(for: request, sent: sent)
            case .file(let file, let size):
                request.timeoutInterval = 60 + Double(size) / 50_000
                (_, response) = try await api.transport.upload(file, for: request, sent: sent)
            }
            if response.statusCode == 200 { return }
        } catch {
            try Task.checkCancellation()
        }
        throw refused
    }

    private func piece(_ file: URL, _ from: Int, _ length: Int) throws -> Data {
        let handle = try FileHandle(forReadingFrom: file)
        defer { try? handle.close() }
        try handle.seek(toOffset: UInt64(from))
        return try handle.read(upToCount: length) ?? Data()
    }

    /// The hash and the size of a file, which is read in pieces.
    private func digest(_ file: URL) throws -> (hash: String, size: Int) {
        let handle = try FileHandle(forReadingFrom: file)
        defer { try? handle.close() }
        var hash = Sha256()
        var size = 0
        while let piece = try pooled({ try handle.read(upToCount: Self.step) }), !piece.isEmpty {
            try Task.checkCancellation()
            hash.update(piece)
            size += piece.count
        }
        return (hash.hex(), size)
    }
}

/// Frees at once what reading a file in a loop leaves behind: on Apple's systems it would live until the loop ends.
private func pooled<T>(_ body: () throws -> T) rethrows -> T {
    #if canImport(ObjectiveC)
        return try autoreleasepool(invoking: body)
    #else
        return try body()
    #endif
}

/// The progress of parts that are sent at the same time.
private final class Sum: @unchecked Sendable {
    private let before: Int
    private let size: Int
    private let progress: @Sendable (Double) -> Void
    private var sent: [Int: Int] = [:]
    private let lock = NSLock()

    init(_ before: Int, of size: Int, _ progress: @escaping @Sendable (Double) -> Void) {
        self.before = before
        self.size = size
        self.progress = progress
    }

    func set(_ part: Int, _ bytes: Int) {
        lock.lock()
        defer { lock.unlock() }
        sent[part] = bytes
        progress(Double(before + sent.values.reduce(0, +)) / Double(size))
    }
}
