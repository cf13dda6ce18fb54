import Foundation

/// Where the client keeps what must survive the app: the session, submits without an answer, purchases. Other apps must
/// not be able to read it: it has the access token.
public protocol Store: Sendable {
    func read(_ key: String) throws -> Data?
    /// Replaces the value as a whole, or removes it if it is nil.
    func write(_ key: String, _ value: Data?) throws
}

extension Store {
    func load<T: Decodable>(_ type: T.Type, _ key: String) throws -> T? {
        // Treat a value that a power cut has damaged as lost. Throwing would keep the app from ever replacing it.
        try read(key).flatMap { try? JSONDecoder().decode(type, from: $0) }
    }

    func save<T: Encodable>(_ key: String, _ value: T?) throws {
        try write(key, value.map { try JSONEncoder().encode($0) })
    }
}

/// A store in memory, which ends with the process.
public final class MemoryStore: Store, @unchecked Sendable {
    private var values: [String: Data] = [:]
    private let lock = NSLock()

    public init() {}

    public func read(_ key: String) -> Data? {
        lock.lock()
        defer { lock.unlock() }
        return values[key]
    }

    public func write(_ key: String, _ value: Data?) {
        lock.lock()
        defer { lock.unlock() }
        values[key] = value
    }
}

/// A folder with one file per value. In an app, choose a folder within its Application Support directory.
public struct FileStore: Store {
    private let folder: URL

    /// Creates the folder if it is not there.
    public init(folder: URL) throws {
        try FileManager.default.createDirectory(
            at: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        self.folder = folder
    }

    public func read(_ key: String) throws -> Data? {
        let file = file(key)
        return FileManager.default.fileExists(atPath: file.path) ? try Data(contentsOf: file) : nil
    }

    public func write(_ key: String, _ value: Data?) throws {
        let file = file(key)
        if let value {
            // A process that is killed here leaves the old value or the new one.
            try value.write(to: file, options: .atomic)
        } else if FileManager.default.fileExists(atPath: file.path) {
            try FileManager.default.removeItem(at: file)
        }
    }

    /// Keys contain the app's names for drafts, which may be anything: a path, longer than a file's name can be, or
    /// different from another one only in their case.
    private func file(_ key: String) -> URL {
        var hash = Sha256()
        hash.update(Data(key.utf8))
        return folder.appendingPathComponent(hash.hex() + ".json")
    }
}
